"""Masks of positions, of bars, and of blocks that scores choose."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from jaxsparse.core.checks import as_array, check_rank
from jaxsparse.core.integers import check_count
from jaxsparse.core.variables import takes_variables
from jaxsparse.index.blocks.checks import check_capacity
from jaxsparse.index.blocks.evaluate import arrays_of_mod
from jaxsparse.index.blocks.grid import Grid, pack_bits
from jaxsparse.index.blocks.lists import build
from jaxsparse.index.blocks.makers import causal as causal_mask
from jaxsparse.index.blocks.making import Size, capacity_for, grid_of
from jaxsparse.index.blocks.numbers import all_blocks, rows_of
from jaxsparse.index.blocks.types import BlockMask, mask_of

#: How many bars back a token attends to in full (Museformer, section 3.2).
BARS = (1, 2, 4, 8, 12, 16, 24, 32)


@takes_variables
def global_tokens(
    positions: Int[ArrayLike, "*B n"], length: int, block_size: Size = 128
) -> BlockMask:
    """Global tokens: each attends to all tokens, and all tokens attend to it (Longformer's global
    attention). `global_tokens(...) | sliding_window(...)` is Longformer's whole pattern.

    Args:
        positions: int[n] or int[B, n], the positions of the global tokens, in any order; they may
            be traced. A position outside of [0, length), such as -1, is ignored.
        length: number of tokens, which are both queries and keys.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, length, None)
    at = rows_of("positions", positions)
    bound = at.size * (grid.rows + grid.columns)
    held, active, full = _global(at, grid)
    words = functools.partial(_global_words, held, grid=grid)
    arrays = build(grid, active, full, words, capacity_for(bound, at))
    return mask_of("block_masks.global_tokens", arrays, grid)


@functools.partial(jax.jit, static_argnums=1)
def _global(at: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array, jax.Array]:
    """bool[B, T], the global tokens; the blocks that hold a True, and nothing else."""
    length = grid.q_len
    image = jnp.arange(at.shape[0], dtype=jnp.int32)[:, None]
    at = jnp.where((at < 0) | (at >= length), length, at)
    held = jnp.zeros((at.shape[0], length), bool).at[image, at].set(True, mode="drop")
    q, kv = _blocks(held, grid)
    q_all = (q | ~jnp.asarray(grid.q_inside())).all(2)
    kv_all = (kv | ~jnp.asarray(grid.kv_inside())).all(2)
    active = q.any(2)[:, None, :, None] | kv.any(2)[:, None, None]
    return held, active, q_all[:, None, :, None] | kv_all[:, None, None]


def _blocks(held: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array]:
    """bool[B, T] as [B, Q, block_q] and [B, C, block_kv], False past the edges."""
    sides = ((grid.rows, grid.block_q), (grid.columns, grid.block_kv))
    q, kv = (
        jnp.pad(held, ((0, 0), (0, n * size - grid.q_len))).reshape(held.shape[0], n, size)
        for n, size in sides
    )
    return q, kv


@functools.partial(jax.jit, static_argnames="grid")
def _global_words(held: jax.Array, ids: jax.Array, grid: Grid) -> jax.Array:
    b, _, row, column = grid.split(ids, 1)
    q, kv = _blocks(held, grid)
    inside = (
        jnp.asarray(grid.q_inside())[row][..., None]
        & jnp.asarray(grid.kv_inside())[column][:, None]
    )
    return pack_bits((q[b, row][..., None] | kv[b, column][:, None]) & inside)


@takes_variables
def bars(
    bar_ids: Int[ArrayLike, "*B T"],
    block_size: Size = 128,
    *,
    related: tuple[int, ...] = BARS,
    summary: Bool[ArrayLike, "*B T"] | None = None,
    partial_capacity: int | None = None,
) -> BlockMask:
    """Attention for music in bars (Museformer's fine- and coarse-grained attention), causal. A
    token attends to its own bar, to the bars that lie a distance in `related` before it, and to the
    summary tokens of all earlier bars. A summary token attends to the tokens of its own bar.

    Args:
        bar_ids: int[T] or int[B, T], the number of each token's bar; they may be traced.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        related: distances in bars, each 1 or more.
        summary: bool, of the shape of `bar_ids`: True for a token that summarises its bar; it comes
            after the bar's other tokens. None: there are no summary tokens.
        partial_capacity: for how many partial blocks to reserve bits, as in `create_block_mask`.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    bar = rows_of("bar_ids", bar_ids)
    grid = grid_of(block_size, bar.shape[1], None)
    table = _distances(related)
    if summary is None:
        stands = jnp.zeros((1, bar.shape[1]), bool)
    else:
        stands = as_array("summary", summary)
        if stands.dtype != np.bool_ or stands.shape != np.shape(bar_ids):
            raise ValueError(
                f"summary is {stands.dtype}{list(stands.shape)}; bar_ids of shape "
                f"{np.shape(bar_ids)} need bool of the same"
            )
        stands = stands if stands.ndim == 2 else stands[None]

    def holds(b: jax.Array, h: jax.Array, q: jax.Array, kv: jax.Array) -> jax.Array:
        mine, its = bar[b, q], bar[b, kv]
        back = mine - its
        near = table[jnp.clip(back, 0, table.size - 1)] & (back < table.size) & (back >= 0)
        q_stands = stands[jnp.minimum(b, stands.shape[0] - 1), q]
        kv_stands = stands[jnp.minimum(b, stands.shape[0] - 1), kv]
        fine = near & (~kv_stands | (q == kv))
        coarse = kv_stands & (back > 0)
        return (q >= kv) & jnp.where(q_stands, mine == its, fine | coarse)

    capacity = check_capacity(partial_capacity)
    arrays = arrays_of_mod(holds, bar.shape[0], 1, grid, capacity)
    return mask_of("block_masks.bars", arrays, grid)


def _distances(related: Any) -> jax.Array:
    """bool[n]: which distances in bars count; 0 does."""
    try:
        steps = [check_count("related", n) for n in related]
    except TypeError:
        raise TypeError(f"related={related!r}; it takes a tuple of ints of 1 or more") from None
    table = np.zeros(max([0, *steps]) + 1, bool)
    table[[0, *steps]] = True
    return jnp.asarray(table)


@takes_variables
def top_k_blocks(
    scores: Float[ArrayLike, "#B #H Q C"],
    k: int,
    block_size: Size,
    q_len: int,
    kv_len: int,
    *,
    causal: bool = False,
    offset: Int[ArrayLike, "#B"] | int = 0,
) -> BlockMask:
    """For each block of queries the `k` blocks of keys with the highest scores, such as learnt or
    pooled ones. The selection runs on the device.

    Args:
        scores: floats [B or 1, H or 1, Q, C], Q = ceil(q_len / block_q), C = ceil(kv_len /
            block_kv). Blocks with -inf or NaN are never chosen; of equal scores the first is.
        k: how many blocks of keys; all, if there are fewer.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        q_len: number of queries.
        kv_len: number of keys.
        causal: leave out keys after the query. The blocks on the diagonal are then always chosen,
            and are among the k.
        offset: only with `causal=True`: the position of the first query among the keys, as in
            `js.block_masks.causal`.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    check_rank("scores", scores, 4, "[B or 1, H or 1, Q, C]")
    scores = as_array("scores", scores)
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        raise TypeError(f"scores has dtype {scores.dtype}; it takes floats")
    scores = all_blocks("scores", scores)
    grid = grid_of(block_size, q_len, kv_len)
    if scores.shape[2:] != (grid.rows, grid.columns):
        raise ValueError(
            f"scores has shape {scores.shape}; {q_len} x {kv_len} positions in blocks of "
            f"{grid.block_q} x {grid.block_kv} need (B, H, {grid.rows}, {grid.columns})"
        )
    k = min(check_count("k", k), grid.columns)
    sizes = (grid.block_q, grid.block_kv)
    if not causal:
        return BlockMask.from_block_bits(_best(scores, k), sizes, q_len, kv_len)
    past = causal_mask(q_len, kv_len, sizes, offset=offset)
    listed = past.block_bits()
    diagonal = listed & ~past.full_block_bits()
    scores = jnp.where(jnp.isnan(scores) | ~listed, -jnp.inf, scores)
    bits = _best(jnp.where(diagonal, jnp.inf, scores), k) | diagonal
    return BlockMask.from_block_bits(bits, sizes, q_len, kv_len) & past


@functools.partial(jax.jit, static_argnums=1)
def _best(scores: jax.Array, k: int) -> jax.Array:
    """bool like scores: the k best of the last axis that are not -inf."""
    scores = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    best, at = jax.lax.top_k(scores, k)
    b, h, q = np.ix_(*(np.arange(n, dtype=np.int32) for n in scores.shape[:3]))
    taken = jnp.where(best == -jnp.inf, scores.shape[3], at)
    found = jnp.zeros(scores.shape, bool)
    return found.at[b[..., None], h[..., None], q[..., None], taken].set(True, mode="drop")
