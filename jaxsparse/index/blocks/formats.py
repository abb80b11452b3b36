"""A mask as other libraries take it: a list of partial blocks and one of full blocks a row."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsparse.index.blocks.lists import FULL
from jaxsparse.reference.block_lists import listed_first


class BlockLists(NamedTuple):
    """The lists of a mask, in the order in which FlexAttention's `BlockMask.from_kv_blocks` and
    FlashAttention's block-sparse tensors have them (`mask_block_cnt`, `mask_block_idx`,
    `full_block_cnt`, `full_block_idx`).

    Attributes:
        kv_num_blocks: int32[b, h, Q], the number of partial blocks of each block of queries.
        kv_indices: int32[b, h, Q, C], their numbers, ascending; 0 after the last.
        full_kv_num_blocks: int32[b, h, Q], the number of full blocks.
        full_kv_indices: int32[b, h, Q, C], their numbers, ascending; 0 after the last.
    """

    kv_num_blocks: jax.Array
    kv_indices: jax.Array
    full_kv_num_blocks: jax.Array
    full_kv_indices: jax.Array


@jax.jit
def lists_of(codes: jax.Array) -> BlockLists:
    """The lists of codes int32[b, h, Q, C]."""
    counts, blocks, _ = listed_first(codes >= 0)
    full_counts, full_blocks, _ = listed_first(codes == FULL)
    return BlockLists(counts, blocks, full_counts, full_blocks)


@functools.partial(jax.jit, static_argnums=6)
def holds_at(
    codes: jax.Array,
    words: jax.Array,
    b: jax.Array,
    h: jax.Array,
    q: jax.Array,
    kv: jax.Array,
    size: tuple[int, int],
) -> jax.Array:
    """Whether a query attends to a key: indices that broadcast. `size` is the blocks'."""
    b = jnp.minimum(b, codes.shape[0] - 1)
    h = jnp.minimum(h, codes.shape[1] - 1)
    code = codes[b, h, q // size[0], kv // size[1]]
    place = kv % size[1]
    word = words[jnp.maximum(code, 0), q % size[0], place // 32]
    bit = (word >> (place % 32).astype(jnp.uint32)) & 1
    return jnp.where(code >= 0, bit.astype(bool), code == FULL)
