"""The gradients of block-sparse attention in plain jnp, over the dense scores."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.reference.sparse_attention.scores import kept, raw_scores, scores


def sparse_attention_grad(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    gout: jax.Array,
    glse: jax.Array | None,
    keep: jax.Array,
    slopes: jax.Array | None,
    bias: jax.Array | None,
    scale: float,
    soft_cap: float,
    precision: lax.Precision,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """dq, dk and dv, in the dtypes of q, k and v, at the cotangents of out and lse."""
    kv_shape, dtype = k.shape[:3], q.dtype
    q, k, v, keep = kept(q, k, v, keep)
    s = scores(q, k, keep, slopes, bias, scale, soft_cap, precision)
    lse = jnp.where(jnp.isfinite(lse), lse, np.float32(0))[..., None]
    p = jnp.exp(jnp.where(keep, s - lse, -np.inf))

    def product(pattern: str, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum(pattern, a, b, precision=precision, preferred_element_type=jnp.float32)

    delta = (gout.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1).swapaxes(1, 2)
    if glse is not None:
        delta = delta - glse
    ds = p * (product("btnh,bsnh->bnts", gout, v) - delta[..., None])
    if soft_cap > 0:
        t = jnp.tanh(raw_scores(q, k, scale, precision) / np.float32(soft_cap))
        ds = ds * (1 - jnp.where(keep, t, np.float32(0)) ** 2)
    ds = (ds * np.float32(scale)).astype(dtype)
    dq = product("bnts,bsnh->btnh", ds, k)
    dk = product("bnts,btnh->bsnh", ds, q)
    dv = product("bnts,btnh->bsnh", p.astype(dtype), gout)

    def by_kv_head(value: jax.Array) -> jax.Array:
        group = value.shape[2] // max(kv_shape[2], 1)
        return value.reshape(*kv_shape, group, value.shape[-1]).sum(3)

    return dq.astype(dtype), by_kv_head(dk).astype(dtype), by_kv_head(dv).astype(dtype)
