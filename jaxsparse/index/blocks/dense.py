"""Between dense masks and blocks."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bits import unpack_mask
from jaxsparse.index.blocks.grid import Grid, pack_bits
from jaxsparse.index.blocks.lists import FULL, NONE, MaskArrays, build
from jaxsparse.index.blocks.numbers import all_blocks


def arrays_of_dense(mask: jax.Array, grid: Grid, capacity: int | None) -> MaskArrays:
    """The arrays of a mask bool[b, h, T, S]."""
    active, full = _states(mask, grid)
    return build(grid, active, full, lambda ids: _words(mask, ids, grid), capacity)


def _cut(mask: jax.Array, grid: Grid) -> jax.Array:
    """bool[b, h, Q, block_q, C, block_kv], False past the edges."""
    b, h = mask.shape[:2]
    below = grid.rows * grid.block_q - grid.q_len
    right = grid.columns * grid.block_kv - grid.kv_len
    padded = jnp.pad(mask, ((0, 0), (0, 0), (0, below), (0, right)))
    return padded.reshape(b, h, grid.rows, grid.block_q, grid.columns, grid.block_kv)


@functools.partial(jax.jit, static_argnums=1)
def _states(mask: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array]:
    cut = _cut(mask, grid)
    queries, keys = jnp.asarray(grid.q_inside()), jnp.asarray(grid.kv_inside())
    inside = queries[None, None, :, :, None, None] & keys[None, None, None, None]
    return cut.any((3, 5)), (cut | ~inside).all((3, 5))


@functools.partial(jax.jit, static_argnums=2)
def _words(mask: jax.Array, ids: jax.Array, grid: Grid) -> jax.Array:
    b, h, row, column = grid.split(ids, mask.shape[1])
    packed = all_blocks("mask", pack_bits(_cut(mask, grid)))
    return packed[b, h, row, :, column]


@functools.partial(jax.jit, static_argnums=2)
def dense_of(codes: jax.Array, words: jax.Array, grid: Grid) -> jax.Array:
    """bool[b, h, T, S] of codes int32[b, h, Q, C] and the words of the slots."""
    *lead, rows, columns = codes.shape
    found = words[jnp.clip(codes, 0, words.shape[0] - 1)]
    state = codes[..., None, None]
    found = jnp.where(state == FULL, np.uint32(0xFFFFFFFF), found)
    found = jnp.where(state == NONE, np.uint32(0), found)
    bits = unpack_mask(found, grid.block_kv).swapaxes(-2, -3)
    bits = bits.reshape(*lead, rows * grid.block_q, columns * grid.block_kv)
    return bits[..., : grid.q_len, : grid.kv_len]
