"""`create_block_mask`: a mask from a function of positions."""

from __future__ import annotations

from jaxsparse.core.integers import check_count
from jaxsparse.index.blocks.checks import check_capacity
from jaxsparse.index.blocks.evaluate import MaskMod, arrays_of_mod, check_mod
from jaxsparse.index.blocks.grid import make_grid
from jaxsparse.index.blocks.types import BlockMask, mask_of


def create_block_mask(
    mask_mod: MaskMod,
    batch: int | None,
    heads: int | None,
    q_len: int,
    kv_len: int,
    block_size: int | tuple[int, int] = 128,
    *,
    partial_capacity: int | None = None,
) -> BlockMask:
    """The blocks of the mask that a function describes, as in FlexAttention. It is evaluated a few
    rows of blocks at a time, inside jit as well, and the dense mask is never held.

        causal = js.create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 4096, 4096)

    Args:
        mask_mod: `(b, h, q_idx, kv_idx) -> bool`, whether the query attends to the key. It gets
            traced int32 scalars under `vmap`, so it works on arrays of indices element by element;
            it may read arrays, `document[q_idx] == document[kv_idx]`, also traced ones.
        batch: how many batch entries have a mask of their own; None: one for all.
        heads: how many heads have a mask of their own; None: one for all.
        q_len: queries.
        kv_len: keys.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        partial_capacity: slots for the bits of partial blocks. None takes as many as there are, and
            inside jit, where that is not known, one for every block: the bits of a dense mask. With
            fewer slots than partial blocks, `overflow` is set, those without a slot attend to
            nothing, and `js.checked()` raises.

    Returns:
        A BlockMask. `js.block_masks` makes the common ones faster than a function does.

    Raises:
        TypeError, ValueError: for a function of another kind, or an argument that does not fit,
            naming it.
    """
    check_mod(mask_mod)
    grid = make_grid(block_size, q_len, kv_len)
    b = 1 if batch is None else check_count("batch", batch)
    h = 1 if heads is None else check_count("heads", heads)
    arrays = arrays_of_mod(mask_mod, b, h, grid, check_capacity(partial_capacity))
    return mask_of("create_block_mask", arrays, grid)
