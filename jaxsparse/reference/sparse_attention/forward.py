"""Block-sparse attention in plain jnp, over the dense scores: its meaning, the oracle of its tests,
its derivative in forward mode, and what other platforms run.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.reference.sparse_attention.scores import kept, scores


def sparse_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    keep: jax.Array,
    slopes: jax.Array | None,
    bias: jax.Array | None,
    scale: float,
    soft_cap: float,
    precision: lax.Precision,
) -> tuple[jax.Array, jax.Array]:
    """q[B, T, N, H], k[B, S, K, H], v[B, S, K, Hv] and keep, bool[B or 1, N or 1, T, S], to out[B,
    T, N, Hv] in the dtype of q and lse, float32[B, N, T].
    """
    q, k, v, keep = kept(q, k, v, keep)
    s = scores(q, k, keep, slopes, bias, scale, soft_cap, precision)
    top = jnp.max(jnp.where(keep, s, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
    top = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, np.float32(0)))
    e = jnp.exp(jnp.where(keep, s - top, -np.inf))
    total = e.sum(-1, keepdims=True)
    some = total > 0
    total = jnp.where(some, total, np.float32(1))
    p = (e / total).astype(v.dtype)
    out = jnp.einsum(
        "bnts,bsnh->btnh", p, v, precision=precision, preferred_element_type=jnp.float32
    )
    lse = jnp.where(some, top + jnp.log(total), -np.inf)[..., 0]
    return out.astype(q.dtype), lse
