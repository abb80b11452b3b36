"""`&` and `|` of two masks, on their words: no dense mask."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.index.blocks.grid import Grid, check_number, pack_bits
from jaxsparse.index.blocks.lists import FULL, NONE, MaskArrays, Numbered, build, number, room

#: codes int32[b, h, Q, C], and the words of their slots.
Coded = tuple[jax.Array, jax.Array]
_ONES = np.uint32(0xFFFFFFFF)


def both(one: Coded, other: Coded, grid: Grid, overflow: jax.Array) -> MaskArrays:
    """Where both masks hold."""
    a, b = jnp.broadcast_arrays(one[0], other[0])
    active = (a != NONE) & (b != NONE)
    full = (a == FULL) & (b == FULL)
    return _combine(one, other, active, full, jnp.bitwise_and, grid, overflow)


def either(one: Coded, other: Coded, grid: Grid, overflow: jax.Array) -> MaskArrays:
    """Where one mask or the other holds."""
    a, b = jnp.broadcast_arrays(one[0], other[0])
    active = (a != NONE) | (b != NONE)
    full = (a == FULL) | (b == FULL)
    return _combine(one, other, active, full, jnp.bitwise_or, grid, overflow)


def _combine(
    one: Coded,
    other: Coded,
    active: jax.Array,
    full: jax.Array,
    join: Callable[[jax.Array, jax.Array], jax.Array],
    grid: Grid,
    overflow: jax.Array,
) -> MaskArrays:
    """A block is partial only where one of the two is, so two masks' slots bound the result's."""
    check_number(active.shape[0], active.shape[1], grid)
    bound = sum(_slots(coded, active.shape) for coded in (one, other))
    slots = min(room(active, full, None), bound)
    if not slots:
        return build(grid, active, full, lambda ids: ids, 0, overflow)
    numbered = number(active, full, slots)
    mine, its = (_gathered(coded, numbered.ids, active.shape) for coded in (one, other))
    words = join(mine, its)
    words, active, full = _sorted_out(words, numbered, active, full, grid)

    def words_of(ids: jax.Array) -> jax.Array:
        return words[jnp.maximum(numbered.codes.reshape(-1)[ids], 0)]

    return build(grid, active, full, words_of, min(room(active, full, None), slots), overflow)


def _slots(coded: Coded, shape: tuple[int, ...]) -> int:
    """How many blocks of the result a mask has slots for, each for all that share it."""
    codes, words = coded
    return words.shape[0] * (math.prod(shape[:2]) // max(math.prod(codes.shape[:2]), 1))


def _gathered(coded: Coded, ids: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32[n, block_q, words] of the blocks `ids`, ones or zeros where these have no slot."""
    codes, words = coded
    code = jnp.broadcast_to(codes, shape).reshape(-1)[jnp.maximum(ids, 0)]
    found = words[jnp.clip(code, 0, words.shape[0] - 1)]
    code = code[:, None, None]
    return jnp.where(code == FULL, _ONES, jnp.where(code == NONE, np.uint32(0), found))


@functools.partial(jax.jit, static_argnums=4)
def _sorted_out(
    words: jax.Array, numbered: Numbered, active: jax.Array, full: jax.Array, grid: Grid
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The joined words without what is past the edges; `active` without the blocks that came out
    empty, `full` with those that came out full.
    """
    _, _, row, column = grid.split(jnp.maximum(numbered.ids, 0), active.shape[1])
    keys = pack_bits(jnp.asarray(grid.kv_inside()))[column][:, None]
    inside = jnp.where(jnp.asarray(grid.q_inside())[row][..., None], keys, np.uint32(0))
    words &= inside
    to = jnp.where(numbered.ids < 0, active.size, numbered.ids)
    empty = jnp.zeros(active.size, bool).at[to].set((words == 0).all((1, 2)), mode="drop")
    whole = jnp.zeros(active.size, bool).at[to].set((words == inside).all((1, 2)), mode="drop")
    active &= ~empty.reshape(active.shape)
    return words, active, full | whole.reshape(active.shape)
