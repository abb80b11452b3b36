"""The saturated layer in plain jnp: its meaning, the oracle of its tests, what other platforms run,
and what is differentiated."""

import jax
import jax.numpy as jnp

from jaxsparse.bounded.bundles import unit_rows
from jaxsparse.bounded.layer import Layer

_IMAGES = 256


def bounded_matmul(x: jax.Array, layer: Layer) -> jax.Array:
    """`min(max(x W^T + b, 0), upper)`, x f32[batch, n_in] -> f32[batch, n_out]; sums in float32.

    Only stored entries multiply: a NaN or Inf reaches the outputs that have an entry for it, and no
    other. The derivative at the bounds is 0.
    """
    starts, indices = jnp.asarray(layer.starts), jnp.asarray(layer.indices).astype(jnp.int32)
    units, rows = starts.shape[0] - 1, unit_rows(layer)
    weights, bias = jnp.asarray(layer.weights).reshape(-1, rows), jnp.asarray(layer.bias)
    owner = jnp.searchsorted(starts, jnp.arange(indices.shape[0]), side="right") - 1

    def image(row: jax.Array) -> jax.Array:
        products = row[indices][:, None] * weights
        sums = jax.ops.segment_sum(products, owner, units + 1)[:units]
        return bound(sums.reshape(-1) + bias, layer.upper)

    if 0 in (x.shape[0], layer.distinct):
        return jnp.zeros((x.shape[0], layer.n_out), x.dtype)
    if x.shape[1] == 0:
        y = jnp.broadcast_to(bound(bias, layer.upper), (x.shape[0], layer.distinct))
    else:
        y = jax.lax.map(image, x, batch_size=min(_IMAGES, x.shape[0]))
    return y[:, jnp.asarray(layer.expand)] if layer.folded else y


def bound(sums: jax.Array, upper: jax.typing.ArrayLike) -> jax.Array:
    """min(max(sums, 0), upper); a NaN stays, and at the bounds nothing passes back."""
    limit = jnp.asarray(upper, jnp.float32)
    return jnp.where(sums <= 0, 0.0, jnp.where(sums >= limit, limit, sums))
