"""From the state of every block to the lists that a kernel walks, in both directions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxsparse.ffi import Rule, dispatch, ffi_call, partitioned
from jaxsparse.ffi.fold import fold_lists
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.index.blocks.grid import Grid, check_number
from jaxsparse.reference.block_lists import block_lists as reference_lists

#: In place of a block's slot: all of it attends; none of it does.
FULL, NONE = -1, -2


class MaskArrays(NamedTuple):
    """The data fields of a `BlockMask`, in its order."""

    kv_counts: jax.Array
    kv_blocks: jax.Array
    kv_slots: jax.Array
    q_counts: jax.Array
    q_blocks: jax.Array
    q_slots: jax.Array
    words: jax.Array
    overflow: jax.Array


class Numbered(NamedTuple):
    """`codes` int32[b, h, Q, C]: the slot of a partial block, FULL or NONE; `ids` int32[slots]: the
    block of each slot, -1 for none; `overflow` bool[]: more partial blocks than slots.
    """

    codes: jax.Array
    ids: jax.Array
    overflow: jax.Array


def is_known(value: object) -> bool:
    """Whether an array's values can be read here and now."""
    return not isinstance(value, Tracer) and getattr(value, "is_fully_addressable", True)


def room(active: jax.Array, full: jax.Array, capacity: int | None) -> int:
    """How many slots partial blocks get: `capacity`, else as many as there are, where that is
    known, and one for every block where it is not.
    """
    if capacity is not None:
        return min(capacity, active.size)
    return int((active & ~full).sum()) if is_known(active) and is_known(full) else active.size


def build(
    grid: Grid,
    active: jax.Array,
    full: jax.Array,
    words_of: Callable[[jax.Array], jax.Array],
    capacity: int | None,
    overflow: jax.Array | bool = False,
) -> MaskArrays:
    """The arrays of a mask.

    Args:
        grid: its blocks.
        active: bool[b, h, Q, C], the blocks in which some query attends to some key.
        full: bool[b, h, Q, C], those in which all of them do.
        words_of: block numbers int32[slots], none negative -> uint32[slots, block_q, words].
        capacity: slots for partial blocks; None takes as many as `room` says.
        overflow: what is flagged already.
    """
    check_number(active.shape[0], active.shape[1], grid)
    slots = 0 if full is active else room(active, full, capacity)
    if slots == 0:
        words = jnp.zeros((1, grid.block_q, grid.row_words), jnp.uint32)
        lost = jnp.zeros((), bool) if full is active else (active & ~full).any()
        whole = active if full is active else active & full
        return MaskArrays(*both_lists(whole), words=words, overflow=lost | overflow)
    numbered = number(active, full, slots)
    words = words_of(jnp.maximum(numbered.ids, 0))
    words = jnp.where(numbered.ids[:, None, None] < 0, jnp.uint32(0), words)
    listed = both_lists(numbered.codes)
    return MaskArrays(*listed, words=words, overflow=numbered.overflow | overflow)


@functools.partial(jax.jit, static_argnums=2)
def number(active: jax.Array, full: jax.Array, capacity: int) -> Numbered:
    """Give the partial blocks their slots, in the order of the blocks. A block past the last slot
    is left out.
    """
    full = active & full
    partial = (active & ~full).reshape(-1)
    rank = jnp.cumsum(partial, dtype=jnp.int32) - 1
    fits = partial & (rank < capacity)
    slots = jnp.where(fits, rank, capacity)
    blocks = jnp.arange(partial.size, dtype=jnp.int32)
    ids = jnp.full(capacity, -1, jnp.int32).at[slots].set(blocks, mode="drop")
    codes = jnp.where(full, FULL, jnp.where(fits, rank, NONE).reshape(active.shape))
    return Numbered(codes.astype(jnp.int32), ids, (partial & ~fits).any())


@jax.jit
def both_lists(codes: jax.Array) -> tuple[jax.Array, ...]:
    """counts, blocks and slots of every row of blocks, then of every column, from `codes` int32[b,
    h, Q, C], or from bool[b, h, Q, C] of full blocks. Entries past a count are undefined.
    """
    return _lister(implementation_key(None))(codes)


#: A mesh splits the batch and the heads.
_MESH_RULE = Rule(
    "block_lists",
    ("b h q c",),
    ("b h .", "b h . .", "b h . .") * 2,
    ("b", "h"),
    ("mask",),
    from_end=True,
    why={
        "q": "a block of keys lists the blocks of all queries",
        "c": "a block of queries lists the blocks of all keys",
    },
)


@functools.cache
def _lister(implementation: Any) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """Codes to lists in both directions. Its vmap rule folds the batch axis into b."""
    run = dispatch(
        "block_lists", implementation, cuda=_native, cpu=_native, reference=reference_lists
    )
    return fold_lists(partitioned(_MESH_RULE, run, lambda _, codes: run(codes)))


def _native(codes: jax.Array) -> tuple[jax.Array, ...]:
    b, h, rows, columns = codes.shape
    by_row, by_column = (b, h, rows), (b, h, columns)
    shapes = by_row, codes.shape, codes.shape
    shapes += by_column, (*by_column, rows), (*by_column, rows)
    return tuple(ffi_call("jaxsparse_block_lists", [(s, np.int32) for s in shapes], codes))


@functools.partial(jax.jit, static_argnums=(3, 4))
def codes_of(
    counts: jax.Array, blocks: jax.Array, slots: jax.Array, columns: int, room: int
) -> jax.Array:
    """int32[b, h, Q, columns]: the inverse of a list. An entry out of range is ignored, as the
    kernels do.
    """
    places = jax.lax.broadcasted_iota(jnp.int32, blocks.shape, 3)
    ours = (places < counts[..., None]) & (blocks >= 0) & (blocks < columns)
    ours &= (slots >= FULL) & (slots < room)
    b, h, q = np.ix_(*(np.arange(n, dtype=np.int32) for n in counts.shape))
    found = jnp.full((*counts.shape, columns), NONE, jnp.int32)
    where = jnp.where(ours, blocks, columns)
    return found.at[b[..., None], h[..., None], q[..., None], where].set(slots, mode="drop")
