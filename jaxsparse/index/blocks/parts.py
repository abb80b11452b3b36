"""Parts of a mask, cut between blocks: some blocks of queries or keys; the shards of the keys."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.core.checks import check_array
from jaxsparse.core.integers import as_int32
from jaxsparse.index.blocks.grid import Grid
from jaxsparse.index.blocks.lists import NONE, both_lists
from jaxsparse.index.blocks.numbers import all_blocks


def check_blocks(name: str, blocks: Any) -> jax.Array | None:
    """Numbers of blocks as int32[n]; None stays None.

    Raises:
        TypeError, ValueError: for another dtype or rank, naming the argument.
    """
    if blocks is None:
        return None
    check_array(name, blocks)
    found = all_blocks(name, as_int32(name, blocks))
    if found.ndim != 1:
        raise ValueError(f"{name} has shape {found.shape}; it takes [n]")
    return found


def taken_grid(grid: Grid, q_blocks: jax.Array | None, kv_blocks: jax.Array | None) -> Grid:
    """The blocks of what is taken.

    Raises:
        ValueError: if the last block is incomplete: elsewhere it would end inside the mask.
    """
    q_len, kv_len = grid.q_len, grid.kv_len
    if q_blocks is not None:
        _check_uncut("q_len", q_len, grid.block_q)
        q_len = q_blocks.shape[0] * grid.block_q
    if kv_blocks is not None:
        _check_uncut("kv_len", kv_len, grid.block_kv)
        kv_len = kv_blocks.shape[0] * grid.block_kv
    return Grid(grid.block_q, grid.block_kv, q_len, kv_len)


def _check_uncut(name: str, length: int, block: int) -> None:
    if length % block:
        whole = -(-length // block) * block
        raise ValueError(
            f"BlockMask.take: the mask's {name}={length} is not a multiple of its blocks of "
            f"{block}: pad the sequence to {whole}, and make the mask for that length"
        )


@functools.partial(jax.jit, static_argnums=2)
def codes_at(codes: jax.Array, blocks: jax.Array, axis: int) -> jax.Array:
    """`codes` int32[b, h, Q, C] at these blocks int32[n] along axis 2 or 3; a block that does
    not exist lists nothing.
    """
    size = codes.shape[axis]
    shape = [*codes.shape]
    shape[axis] = blocks.shape[0]
    if not size:
        return jnp.full_like(codes, NONE, shape=shape)
    found = jnp.take(codes, jnp.clip(blocks, 0, size - 1), axis=axis)
    inside = jnp.expand_dims((blocks >= 0) & (blocks < size), [i for i in range(4) if i != axis])
    return jnp.where(inside, found, NONE)


@functools.partial(jax.jit, static_argnums=1)
def lists_of_shards(codes: jax.Array, shards: int) -> tuple[jax.Array, ...]:
    """The six lists of each shard of the keys, each with a leading axis [shards], in one call.
    `codes` is int32[b, h, Q, C]; shards divide C, and a shard's blocks of keys are numbered from 0.
    """
    b, h, rows, columns = codes.shape
    each = codes.reshape(b, h, rows, shards, columns // shards)
    each = jnp.moveaxis(each, 3, 0).reshape(shards * b, h, rows, columns // shards)
    return tuple(v.reshape(shards, b, *v.shape[1:]) for v in both_lists(each))
