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
    """A mask from a function of positions, as in FlexAttention. The function is evaluated for a few
    rows of blocks at a time, also inside jit; the dense mask is never stored.

        causal = js.create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 4096, 4096)

    Args:
        mask_mod: `(b, h, q_idx, kv_idx) -> bool[]`, whether the query attends to the key. Its
            arguments are traced int32 scalars under `vmap`: use jax.numpy, and no Python `if` on
            them. It may read jax arrays, traced ones too: `document[q_idx] == document[kv_idx]`.
        batch: the batch size, for a mask that depends on `b`; None: one mask for the whole batch.
        heads: the number of heads, for a mask that depends on `h`; None: one mask for all heads.
        q_len: number of queries.
        kv_len: number of keys.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        partial_capacity: for how many partial blocks to reserve bits. None: as many as there are;
            inside jit, where that is not known, one for every block, as much memory as the bits of
            the dense mask. If there are more partial blocks, the rest attend to nothing, `overflow`
            is set, and `js.checked()` raises.

    Returns:
        A BlockMask. For common masks `js.block_masks` is faster.

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
