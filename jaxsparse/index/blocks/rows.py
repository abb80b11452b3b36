"""One query's row of a mask: what it attends to in a cache of keys."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.index.blocks.grid import SMALLEST, Grid, pack_bits
from jaxsparse.index.blocks.lists import FULL, NONE, MaskArrays, build


def row_grid(grid: Grid) -> Grid:
    """The blocks of one query."""
    return Grid(SMALLEST, grid.block_kv, 1, grid.kv_len)


def arrays_of_row(codes: jax.Array, words: jax.Array, at: jax.Array, grid: Grid) -> MaskArrays:
    """The arrays of the mask bool[B, h, 1, S] of the queries `at` int32[1 or B, 1, 1]."""
    bits, active, full = _row(codes, words, at, grid)
    of = row_grid(grid)

    def words_of(ids: jax.Array) -> jax.Array:
        found = bits.reshape(-1, 1, bits.shape[-1])[ids]
        return jnp.pad(found, ((0, 0), (0, of.block_q - 1), (0, 0)))

    return build(of, active, full, words_of, None)


@functools.partial(jax.jit, static_argnums=3)
def _row(
    codes: jax.Array, words: jax.Array, at: jax.Array, grid: Grid
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """uint32[B, h, C, words], the bits; bool[B, h, 1, C], the blocks that hold a True, and nothing
    else. A query outside of the mask attends to nothing.
    """
    batch = max(codes.shape[0], at.shape[0]) if codes.shape[0] else 0
    at = jnp.broadcast_to(at[:, 0, 0], batch)
    image = jnp.minimum(jnp.arange(batch, dtype=jnp.int32), max(codes.shape[0] - 1, 0))
    inside = (at >= 0) & (at < grid.q_len)
    at = jnp.clip(at, 0, max(grid.q_len - 1, 0))
    if not grid.rows:
        code = jnp.full((batch, codes.shape[1], grid.columns), NONE, jnp.int32)
    else:
        code = codes[image, :, at // grid.block_q]
    code = jnp.where(inside[:, None, None], code, NONE)
    bits = words[jnp.clip(code, 0, words.shape[0] - 1), (at % grid.block_q)[:, None, None]]
    whole = pack_bits(jnp.asarray(grid.kv_inside()))
    bits = jnp.where(code[..., None] == FULL, whole, bits & whole)
    bits = jnp.where(code[..., None] == NONE, np.uint32(0), bits)
    return bits, (bits != 0).any(-1)[:, :, None], (bits == whole).all(-1)[:, :, None]
