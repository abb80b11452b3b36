"""The masks of the two networks, dense and in blocks. Positions and bars are data: the masks are
built inside `jit`, once for all layers.

The time of `js.create_block_mask` follows the square of the length. Here the blocks that can count
are found first, and the mask's function is evaluated in those only.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from models.long.config import FINE, GLOBALS, Config

MOST_PARTIAL = 40  # blocks of keys for each block of queries, in the mask of bars


def dense_mask(config: Config, tokens: int, given: jax.Array) -> jax.Array:
    """bool[B,1,rows,rows]: the whole mask."""
    rows = jnp.arange(tokens + config.summaries(tokens), dtype=jnp.int32)
    q, kv, batch = rows[:, None], rows[None], len(given)
    if config.kind == "museformer":
        holds = bar_rule(config, tokens, given)
        return jnp.stack([holds(b, 0, q, kv) for b in range(batch)])[:, None]
    at = jnp.where(given < 0, tokens, given)
    chosen = jnp.zeros((batch, tokens), bool)
    chosen = chosen.at[np.arange(batch)[:, None], at].set(True, mode="drop")
    return ((jnp.abs(q - kv) <= config.reach) | chosen[:, None])[:, None]


def window_mask(config: Config, tokens: int, positions: jax.Array) -> js.BlockMask:
    """Keys are the global tokens, GLOBALS rows, then all tokens. A query attends to the tokens of
    its window, and to the global ones outside of it. The blocks are known at trace time.
    """
    (rows, columns), reach = config.block, config.reach

    def holds(b: jax.Array, h: jax.Array, q: jax.Array, kv: jax.Array) -> jax.Array:
        where = positions[b, jnp.minimum(kv, GLOBALS - 1)]
        outside = (where >= 0) & (jnp.abs(q - where) > reach)
        return jnp.where(kv < GLOBALS, outside, jnp.abs(q - (kv - GLOBALS)) <= reach)

    first = np.arange(0, tokens, rows)[:, None]
    last = np.minimum(first + rows, tokens) - 1
    key = np.arange(0, GLOBALS + tokens, columns)[None] - GLOBALS
    end = np.minimum(key + columns, tokens) - 1
    front = key < 0
    active = front | ((key <= last + reach) & (end >= first - reach))
    full = ~front & (last - key <= reach) & (end - first <= reach)
    shape = len(positions), 1, *active.shape
    states = (jnp.broadcast_to(bits, shape) for bits in (active, full))
    slots = len(positions) * int((active & ~full).sum())
    return _listed(config, holds, *states, (tokens, GLOBALS + tokens), slots)


def bar_rule(config: Config, tokens: int, bars: jax.Array) -> Callable[..., jax.Array]:
    """Which pairs attend: rows of summaries, one for each bar, stand before the tokens."""
    summaries, fine = config.summaries(tokens), jnp.asarray(FINE)

    def bar_of(b: jax.Array, row: jax.Array) -> jax.Array:
        return jnp.where(row < summaries, row, bars[b, jnp.maximum(row - summaries, 0)])

    def holds(b: jax.Array, h: jax.Array, q: jax.Array, kv: jax.Array) -> jax.Array:
        back = bar_of(b, q) - bar_of(b, kv)
        near = (q >= kv) & (back < FINE.size) & fine[jnp.clip(back, 0, FINE.size - 1)]
        return jnp.where(q < summaries, back == 0, jnp.where(kv < summaries, back > 0, near))

    return holds


def bar_mask(config: Config, tokens: int, bars: jax.Array) -> js.BlockMask:
    """The mask of `bar_rule`. A block spans a range of bars; the distances that two ranges have say
    whether some pair of their tokens can attend, and whether every pair does.
    """
    summaries, batch = config.summaries(tokens), len(bars)
    length = summaries + tokens
    own = jnp.broadcast_to(jnp.arange(summaries, dtype=jnp.int32), (batch, summaries))
    bar = jnp.concatenate([own, bars], 1)
    q, kv = (np.arange(0, length, size) for size in config.block)
    q_end, kv_end = (
        np.minimum(at + size, length) - 1 for at, size in zip((q, kv), config.block, strict=True)
    )
    least = bar[:, q][:, :, None] - bar[:, kv_end][:, None]
    most = bar[:, q_end][:, :, None] - bar[:, kv][:, None]
    before = jnp.asarray(np.cumsum([0, *FINE]), jnp.int32)
    fine = before[jnp.clip(most + 1, 0, FINE.size)] - before[jnp.clip(least, 0, FINE.size)]
    some = jnp.where(kv < summaries, most > 0, (fine > 0) & (kv <= q_end[:, None]))
    every = jnp.where(kv < summaries, least > 0, (fine == most - least + 1) & (kv_end < q[:, None]))
    summary = (q < summaries)[:, None]
    some = jnp.where(summary, (least <= 0) & (most >= 0), some)[:, None]
    every = (every & ~summary)[:, None]
    slots = batch * len(q) * min(len(kv), MOST_PARTIAL)
    rule = bar_rule(config, tokens, bars)
    return _listed(config, rule, some, every, (length, length), slots)


def _listed(
    config: Config,
    holds: Callable[..., jax.Array],
    some: jax.Array,
    every: jax.Array,
    lengths: tuple[int, int],
    slots: int,
) -> js.BlockMask:
    """The mask of a function from blocks bool[B,1,Q,C]: where `some` pair may attend, and where
    `every` pair does. The function is evaluated in the others of `some`, at most `slots`.
    """
    partial = some & ~every
    return js.BlockMask.from_lists(
        partial.sum(-1, dtype=jnp.int32),
        jnp.argsort(~partial, axis=-1),
        every.sum(-1, dtype=jnp.int32),
        jnp.argsort(~every, axis=-1),
        block_size=config.block,
        q_len=lengths[0],
        kv_len=lengths[1],
        mask_mod=holds,
        partial_capacity=slots,
    )
