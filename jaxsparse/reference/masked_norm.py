"""Normalisation by the statistics of active positions, in plain jnp."""

import jax
import jax.numpy as jnp

from jaxsparse.core.types import Norm


def statistics(
    x: jax.Array, mask: jax.Array, kind: Norm, groups: int
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance, float32, of x [B, positions, C] where mask [B, positions] holds: [C] of a
    batch, [B, groups] of groups, [B, positions] of layers. Zeros where nothing counts.
    """
    batch, positions, channels = x.shape
    kept = jnp.where(mask[..., None], x, jnp.zeros_like(x)).astype(jnp.float32)
    parts = kept.reshape(batch, positions, groups, channels // max(groups, 1))
    axes = {"batch": (0, 1), "group": (1, 3), "layer": (2, 3)}[kind]
    counted = jnp.broadcast_to(mask[:, :, None, None], parts.shape)
    number = jnp.maximum(counted.sum(axes, keepdims=True, dtype=jnp.float32), 1.0)
    mean = parts.sum(axes, keepdims=True) / number
    apart = jnp.where(counted, parts - mean, 0.0)
    var = (apart * apart).sum(axes, keepdims=True) / number
    shape = {"batch": (channels,), "group": (batch, groups), "layer": (batch, positions)}[kind]
    return mean.reshape(shape), var.reshape(shape)


def normalize(
    x: jax.Array,
    mask: jax.Array,
    mean: jax.Array,
    var: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    base: jax.Array | None,
    kind: Norm,
    epsilon: float,
) -> jax.Array:
    """`where(mask, (x - mean) / sqrt(var + epsilon) * scale + bias, base)` of x [B, positions, C],
    in float32, rounded to x's dtype.
    """
    kept = jnp.where(mask[..., None], x, jnp.zeros_like(x)).astype(jnp.float32)
    mean, factor = (_spread(v, kind, x.shape[2]) for v in (mean, jax.lax.rsqrt(var + epsilon)))
    y = (kept - mean) * factor
    y = y if scale is None else y * scale.astype(jnp.float32)
    y = y if bias is None else y + bias.astype(jnp.float32)
    y = y.astype(x.dtype)
    return jnp.where(mask[..., None], y, jnp.zeros_like(y) if base is None else base)


def _spread(value: jax.Array, kind: Norm, channels: int) -> jax.Array:
    """Statistics, for every position and channel that they hold for."""
    if kind == "batch":
        return value
    if kind == "layer":
        return value[:, :, None]
    return jnp.repeat(value, channels // max(value.shape[1], 1), axis=1)[:, None, :]
