"""The saturated layer in plain jnp: its meaning, the oracle of its tests, and what other platforms
run."""

import jax
import jax.numpy as jnp

from jaxsparse.bounded.layer import Layer

_IMAGES = 256


def bounded_matmul(x: jax.Array, layer: Layer) -> jax.Array:
    """`min(max(x W^T + b, 0), upper)`, x f32[batch, n_in] -> f32[batch, n_out]; sums in float32.

    Only stored entries multiply: a NaN or Inf reaches the outputs that have an entry for it, and no
    other.
    """
    starts, indices = jnp.asarray(layer.starts), jnp.asarray(layer.indices).astype(jnp.int32)
    weights, bias = jnp.asarray(layer.weights), jnp.asarray(layer.bias)
    rows = jnp.searchsorted(starts, jnp.arange(indices.shape[0]), side="right") - 1
    distinct, upper = bias.shape[0], jnp.asarray(layer.upper, jnp.float32)

    def image(row: jax.Array) -> jax.Array:
        sums = jax.ops.segment_sum(row[indices] * weights, rows, distinct + 1)[:distinct]
        return jnp.minimum(jnp.maximum(sums + bias, 0.0), upper)

    if 0 in (x.shape[0], distinct):
        return jnp.zeros((x.shape[0], layer.n_out), x.dtype)
    if x.shape[1] == 0:
        y = jnp.broadcast_to(jnp.clip(bias, 0.0, upper), (x.shape[0], distinct))
    else:
        y = jax.lax.map(image, x, batch_size=min(_IMAGES, x.shape[0]))
    return y[:, jnp.asarray(layer.expand)] if layer.folded else y
