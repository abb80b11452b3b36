"""A convolution with frozen weights by definition: dense, with the kept weights in place."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.core.geometry import Geometry
from jaxsparse.reference.masked_conv import masked_conv
from jaxsparse.reference.pruned_matmul import Values, dense_weight


def pruned_conv(
    x: jax.Array,
    values: Values,
    where: np.ndarray,
    kernel_shape: tuple[int, int, int, int],
    bias: jax.Array | None,
    geometry: Geometry,
    *,
    channels_first: bool,
    activation: str | None,
    precision: lax.Precision | None,
    out_dtype: np.dtype,
) -> jax.Array:
    """activation(conv(x, kernel) + bias), summed in float32, rounded once; x is NHWC or NCHW.

    The kernel, HWIO, has `values` [kept] at the flat places `where` int[kept].
    """
    kernel = jnp.asarray(dense_weight(values, where, kernel_shape))
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
