"""Pooling over active positions, in plain jnp: XLA's windows."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.core.types import Pooling


def masked_pool(
    x: jax.Array,
    mask: jax.Array,
    base: jax.Array | None,
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
    kind: Pooling,
) -> jax.Array:
    """The largest or the mean value of x [B, H, W, C] among the positions of a window where mask
    [B, H, W] holds; `base`, or zero, where a window has none.
    """
    dims, steps, room = (1, *window, 1), (1, *strides, 1), ((0, 0), *pads, (0, 0))
    kept, counted = mask[..., None], mask[..., None].astype(jnp.float32)
    number = lax.reduce_window(counted, 0.0, lax.add, dims, steps, room)
    if kind == "avg":
        values = jnp.where(kept, x, jnp.zeros_like(x)).astype(jnp.float32)
        total = lax.reduce_window(values, 0.0, lax.add, dims, steps, room)
        y = (total / jnp.maximum(number, 1.0)).astype(x.dtype)
    else:
        lowest = np.array(-np.inf, x.dtype)
        values = jnp.where(kept, x, jnp.full_like(x, lowest))
        y = lax.reduce_window(values, lowest, lax.max, dims, steps, room)
    return jnp.where(number > 0, y, jnp.zeros_like(y) if base is None else base)
