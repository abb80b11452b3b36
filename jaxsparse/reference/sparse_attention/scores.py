"""The scores of attention under a mask, in plain jnp."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def kept(
    q: jax.Array, k: jax.Array, v: jax.Array, keep: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The operands for each query head, zero where nothing keeps them; keep as bool[B, N, T, S]."""
    batch, q_len, heads, _ = q.shape
    kv_len, kv_heads = k.shape[1:3]
    keep = jnp.broadcast_to(keep, (batch, heads, q_len, kv_len))
    k, v = (jnp.repeat(x, heads // max(kv_heads, 1), axis=2) for x in (k, v))
    rows, columns = (keep.any(axis).swapaxes(1, 2)[..., None] for axis in (3, 2))
    q = jnp.where(rows, q, jnp.zeros_like(q))
    k, v = (jnp.where(columns, x, jnp.zeros_like(x)) for x in (k, v))
    return q, k, v, keep


def raw_scores(q: jax.Array, k: jax.Array, scale: float, precision: lax.Precision) -> jax.Array:
    """scale * q.k, float32[B, N, T, S]."""
    found = jnp.einsum(
        "btnh,bsnh->bnts", q, k, precision=precision, preferred_element_type=jnp.float32
    )
    return found * np.float32(scale)


def scores(
    q: jax.Array,
    k: jax.Array,
    keep: jax.Array,
    slopes: jax.Array | None,
    bias: jax.Array | None,
    scale: float,
    soft_cap: float,
    precision: lax.Precision,
) -> jax.Array:
    """float32[B, N, T, S] of q[B, T, N, H] and k[B, S, N, H]; 0 where `keep` does not hold."""
    found = raw_scores(q, k, scale, precision)
    if soft_cap > 0:
        found = np.float32(soft_cap) * jnp.tanh(found / np.float32(soft_cap))
    if slopes is not None:
        away = jnp.arange(k.shape[1])[None, :] - jnp.arange(q.shape[1])[:, None]
        found = found + slopes[None, :, None, None] * away.astype(jnp.float32)[None, None]
    if bias is not None:
        found = found + bias.astype(jnp.float32)
    return jnp.where(keep, found, np.float32(0))
