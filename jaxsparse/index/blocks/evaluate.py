"""A mask function evaluated a few rows of blocks at a time: the dense mask is never held."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.index.blocks.grid import Grid, check_number, pack_bits
from jaxsparse.index.blocks.lists import MaskArrays, build

#: (batch, head, query, key), each int32[] -> bool[]: whether the query attends to the key.
MaskMod = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]

#: Positions that are evaluated in one step.
STEP = 2**24


def check_mod(mask_mod: Any) -> None:
    """`mask_mod` takes four indices and returns a bool.

    Raises:
        TypeError, ValueError: saying what it returns.
    """
    if not callable(mask_mod):
        raise TypeError(
            f"mask_mod must be a function of (b, h, q_idx, kv_idx), not {type(mask_mod).__name__}"
        )
    _check_arguments(mask_mod)
    place = jax.ShapeDtypeStruct((), jnp.int32)
    try:
        found = jax.eval_shape(lambda *at: mask_mod(*at), place, place, place, place)
    except jax.errors.TracerBoolConversionError as why:
        raise TypeError(
            "mask_mod asks for the truth of an index, with `and`, `or`, `not` or `if`: the indices "
            "are traced, so combine conditions with `&`, `|` and `~`"
        ) from why
    except (jax.errors.TracerIntegerConversionError, jax.errors.TracerArrayConversionError) as why:
        raise TypeError(
            "mask_mod uses an index as a number of Python or numpy: it is traced, so the arrays "
            "that it reads must be jax's (jnp.asarray)"
        ) from why
    leaves = jax.tree.leaves(found)
    if len(leaves) != 1 or leaves[0].dtype != np.bool_:
        came = [np.dtype(leaf.dtype).name for leaf in leaves]
        raise TypeError(f"mask_mod returned {came}; it must return one bool array")
    if leaves[0].shape:
        raise ValueError(
            f"mask_mod returned shape {leaves[0].shape} for one query and one key; it must be "
            "elementwise"
        )


def _check_arguments(mask_mod: Callable[..., Any]) -> None:
    try:
        inspect.signature(mask_mod).bind(0, 0, 0, 0)
    except TypeError as why:
        raise TypeError(
            f"mask_mod takes other arguments ({why}); it is called with (b, h, q_idx, kv_idx)"
        ) from why
    except ValueError:
        return  # a function without a signature


def arrays_of_mod(
    mask_mod: MaskMod, batch: int, heads: int, grid: Grid, capacity: int | None
) -> MaskArrays:
    """The arrays of the mask that a function describes."""
    check_number(batch, heads, grid)
    active, full = _states(mask_mod, batch, heads, grid)
    return build(grid, active, full, lambda ids: words_of(mask_mod, ids, heads, grid), capacity)


def _states(mask_mod: MaskMod, batch: int, heads: int, grid: Grid) -> tuple[jax.Array, jax.Array]:
    """Which blocks hold a True, and which hold nothing else, bool[batch, heads, Q, C]."""
    shape = (batch, heads, grid.rows, grid.columns)
    if 0 in shape:
        return jnp.zeros(shape, bool), jnp.zeros(shape, bool)
    q_inside, kv_inside = jnp.asarray(grid.q_inside()), jnp.asarray(grid.kv_inside())
    width = grid.columns * grid.block_kv

    def one_row(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        image, row = number // grid.rows, number % grid.rows
        bits = _bits(mask_mod, image // heads, image % heads, row, 0, width, grid)
        bits = bits.reshape(grid.block_q, grid.columns, grid.block_kv)
        inside = q_inside[row][:, None, None] & kv_inside[None]
        return (bits & inside).any((0, 2)), (bits | ~inside).all((0, 2))

    rows = jnp.arange(batch * heads * grid.rows, dtype=jnp.int32)
    step = max(STEP // (grid.block_q * width), 1)
    active, full = jax.lax.map(one_row, rows, batch_size=min(step, rows.size))
    return active.reshape(shape), full.reshape(shape)


def words_of(mask_mod: MaskMod, ids: jax.Array, heads: int, grid: Grid) -> jax.Array:
    """uint32[n, block_q, words]: the bits of the blocks `ids` int32[n], zero past the edges."""
    q_inside, kv_inside = jnp.asarray(grid.q_inside()), jnp.asarray(grid.kv_inside())

    def one_block(number: jax.Array) -> jax.Array:
        b, h, row, column = grid.split(number, heads)
        bits = _bits(mask_mod, b, h, row, column * grid.block_kv, grid.block_kv, grid)
        return pack_bits(bits & q_inside[row][:, None] & kv_inside[column][None])

    step = max(STEP // (grid.block_q * grid.block_kv), 1)
    return jax.lax.map(one_block, ids, batch_size=min(step, ids.size))


def _bits(
    mask_mod: MaskMod,
    b: jax.Array,
    h: jax.Array,
    row: jax.Array,
    first: jax.Array | int,
    width: int,
    grid: Grid,
) -> jax.Array:
    """bool[block_q, width]: a row of blocks against the keys from `first` on. A position past the
    edge is evaluated as the last one.
    """
    q = row * grid.block_q + jnp.arange(grid.block_q, dtype=jnp.int32)
    kv = first + jnp.arange(width, dtype=jnp.int32)
    q, kv = jnp.minimum(q, grid.q_len - 1), jnp.minimum(kv, grid.kv_len - 1)
    over_keys = jax.vmap(lambda *at: jnp.asarray(mask_mod(*at)), (None, None, None, 0))
    return jax.vmap(over_keys, (None, None, 0, None))(b, h, q, kv)
