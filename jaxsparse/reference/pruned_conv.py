"""A convolution with frozen weights by definition: dense, with the kept weights in place."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.ops.geometry import Geometry
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.reference.masked_conv import masked_conv
from jaxsparse.reference.pruned_matmul import dense_weight


def kernel_shape(pattern: Pattern) -> tuple[int, int, int, int]:
    """[kh, kw, C/groups, O] of the dense kernel."""
    kh, kw = pattern.window or (1, 1)
    return kh, kw, pattern.channels // pattern.groups, pattern.n_out


def pruned_conv(
    x: jax.Array,
    values: Any,
    bias: jax.Array | None,
    pattern: Pattern,
    geometry: Geometry,
    *,
    channels_first: bool,
    activation: str | None,
    precision: Any,
    out_dtype: Any,
) -> jax.Array:
    """activation(conv(x, kernel) + bias), summed in float32, rounded once; x is NHWC or NCHW."""
    kernel = jnp.asarray(dense_weight(pattern, values, kernel_shape(pattern)))
    x = x.transpose(0, 2, 3, 1) if channels_first else x
    mask = jnp.ones((x.shape[0], *geometry.out_size(x.shape[1:3], kernel.shape[:2])), bool)
    y = masked_conv(
        x,
        kernel,
        mask,
        geometry=geometry,
        bias=bias,
        activation=activation,
        precision=precision,
        out_dtype=jnp.dtype(out_dtype),
    )
    return y.transpose(0, 3, 1, 2) if channels_first else y
