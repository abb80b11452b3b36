"""Masks in which every query attends to one range of keys: the state of a block follows from the
ranges of its queries, so positions are only looked at where a block is partial.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxsparse.index.blocks.grid import Grid, check_number, pack_bits
from jaxsparse.index.blocks.lists import MaskArrays, build


def arrays_of_ranges(
    starts: jax.Array, stops: jax.Array, grid: Grid, capacity: int | None
) -> MaskArrays:
    """The arrays of the mask in which query q attends to the keys of [starts[q], stops[q]).

    Args:
        starts: int32[b, h, T].
        stops: int32[b, h, T].
        grid: the blocks.
        capacity: slots for partial blocks.
    """
    check_number(starts.shape[0], starts.shape[1], grid)
    active, full = _states(starts, stops, grid)
    return build(grid, active, full, lambda ids: _words(starts, stops, ids, grid), capacity)


def _rows(starts: jax.Array, stops: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array]:
    """Both as int32[b, h, Q, block_q], cut to the keys; empty past the last query."""
    shape = (*starts.shape[:2], grid.rows, grid.block_q)
    past = grid.rows * grid.block_q - grid.q_len
    starts, stops = jnp.clip(starts, 0, grid.kv_len), jnp.clip(stops, 0, grid.kv_len)
    pad = ((0, 0), (0, 0), (0, past))
    return jnp.pad(starts, pad).reshape(shape), jnp.pad(stops, pad).reshape(shape)


@functools.partial(jax.jit, static_argnums=2)
def _states(starts: jax.Array, stops: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array]:
    """Which blocks hold a True, and which hold nothing else, bool[b, h, Q, C]."""
    lo, hi = (value[..., None] for value in _rows(starts, stops, grid))
    first = jnp.arange(grid.columns, dtype=jnp.int32) * grid.block_kv
    last = jnp.minimum(first + grid.block_kv, grid.kv_len)
    inside = jnp.asarray(grid.q_inside())[..., None]
    active = (lo < last) & (hi > first) & (lo < hi)
    full = (lo <= first) & (hi >= last) | ~inside
    return active.any(3), full.all(3)


@functools.partial(jax.jit, static_argnums=3)
def _words(starts: jax.Array, stops: jax.Array, ids: jax.Array, grid: Grid) -> jax.Array:
    b, h, row, column = grid.split(ids, starts.shape[1])
    lo, hi = (value[b, h, row][..., None] for value in _rows(starts, stops, grid))
    keys = jnp.arange(grid.block_kv, dtype=jnp.int32)
    keys = (column[:, None] * grid.block_kv + keys)[:, None]
    return pack_bits((keys >= lo) & (keys < hi))


def edge_blocks(grid: Grid) -> int:
    """The most partial blocks along an edge that moves by at most one key a query."""
    return grid.rows * ((grid.block_q - 2) // grid.block_kv + 2)
