"""The attention of the two networks in jax.numpy: each chunk of queries with the keys that it can
attend to, gathered. The scores of all pairs are never stored.
"""

import jax
import jax.numpy as jnp
import numpy as np

from models.long.config import BARS, Config

#: Keys, values and bool (which keys a query attends to) for each chunk [B,chunks,...].
Part = tuple[jax.Array, jax.Array, jax.Array]


def attend(q: jax.Array, parts: list[Part]) -> jax.Array:
    """One softmax over the keys of all parts: q [B,C,Q,N,H], keys and values [B,C or 1,S,N,H],
    bools that broadcast to [B,C,Q,S] -> [B,C,Q,N,H]. A query without keys gives zeros.
    """
    scale = np.float32(q.shape[-1] ** -0.5)
    scores = []
    for k, _, holds in parts:
        found = jnp.einsum("bcqnh,bcknh->bcnqk", q, _as_chunks(k, q), preferred_element_type="f4")
        scores.append(jnp.where(holds[:, :, None], scale * found, -jnp.inf))
    joined = jnp.concatenate(scores, -1)
    highest = jnp.maximum(joined.max(-1, keepdims=True), np.float32(-1e30))
    weights = jnp.exp(joined - highest)
    total = jnp.maximum(weights.sum(-1, keepdims=True), np.float32(1e-30))
    weights = (weights / total).astype(q.dtype)
    edges = np.cumsum([k.shape[2] for k, _, _ in parts])[:-1].tolist()
    shares = zip(jnp.split(weights, edges, -1), parts, strict=True)
    found = [jnp.einsum("bcnqk,bcknh->bcqnh", w, _as_chunks(v, q)) for w, (_, v, _) in shares]
    return sum(found[1:], found[0])


def _as_chunks(x: jax.Array, q: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x, (*q.shape[:2], *x.shape[2:]))


def window(
    config: Config, positions: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array
) -> jax.Array:
    """Chunks of `reach` queries attend to three chunks of keys, and to the global tokens."""
    batch, tokens, size = *q.shape[:2], config.reach
    chunks = tokens // size

    def around(x: jax.Array) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (size, size), (0, 0), (0, 0)))
        x = x.reshape(batch, chunks + 2, size, *x.shape[2:])
        return jnp.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], 2)

    place = np.arange(tokens, dtype=np.int32).reshape(1, chunks, size, 1)
    key = place[:, :, :1] - size + np.arange(3 * size, dtype=np.int32)
    near = jnp.asarray((np.abs(place - key) <= size) & (key >= 0) & (key < tokens))
    where = positions[:, None, None]
    outside = (where >= 0) & (jnp.abs(place - where) > size)
    rows = np.arange(batch)[:, None], jnp.maximum(positions, 0)
    parts = [(around(k), around(v), near), (k[rows][:, None], v[rows][:, None], outside)]
    return attend(q.reshape(batch, chunks, size, *q.shape[2:]), parts).reshape(q.shape)


def bars(config: Config, bar_ids: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Bars padded to the longest there can be attend to the bars at the related distances, and to
    the summaries.
    """
    batch, tokens = bar_ids.shape
    summaries, size = q.shape[1] - tokens, config.bar[1]
    count = -(-tokens // config.bar[0])  # bars there can be
    image = np.arange(batch)[:, None]
    starts = jax.vmap(lambda row: jnp.searchsorted(row, jnp.arange(count)))(bar_ids)
    place = image, bar_ids, jnp.arange(tokens) - starts[image, bar_ids]

    def padded(x: jax.Array) -> jax.Array:
        room = jnp.zeros((batch, count, size, *x.shape[2:]), x.dtype)
        return room.at[place].set(x)

    def back(x: jax.Array, distance: int) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (distance, 0), *((0, 0),) * (x.ndim - 2)))
        return x[:, :count]

    there = padded(jnp.ones((batch, tokens), bool))[:, :, None]
    keys, values = (padded(x[:, summaries:]) for x in (k, v))
    parts = [(keys, values, there & jnp.asarray(np.tri(size, dtype=bool)))]
    for distance in BARS:
        if distance < count:
            parts.append((back(keys, distance), back(values, distance), back(there, distance)))
    earlier = jnp.asarray(np.tri(count, k=-1, dtype=bool))[None, :, None]
    parts.append((k[:, None, :count], v[:, None, :count], earlier))
    mine = attend(padded(q[:, summaries:]), parts)[place]
    itself = (k[:, :count, None], v[:, :count, None], jnp.ones((1, 1, 1, 1), bool))
    summary = attend(q[:, :count, None], [(keys, values, there), itself])[:, :, 0]
    return jnp.concatenate([summary, v[:, count:summaries], mine], 1)  # others attend to themselves
