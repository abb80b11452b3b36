"""The masked convolution in plain jnp: its meaning, and what other platforms run."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.geometry import Geometry
from jaxsparse.core.masks import where_set

FLOAT32 = jnp.dtype(jnp.float32)


def masked_conv(
    x: jax.Array,
    kernel: jax.Array,
    mask: jax.Array,
    *,
    geometry: Geometry,
    bias: jax.Array | None = None,
    base: jax.Array | None = None,
    residual: jax.Array | None = None,
    x_mask: jax.Array | None = None,
    activation: str | None = None,
    precision: lax.Precision | None = None,
    out_dtype: jnp.dtype,
    sum_dtype: jnp.dtype = FLOAT32,
) -> jax.Array:
    """`where(mask, activation(conv(where(x_mask, x, 0), kernel) + bias + residual), base)`.

    x[B,H,W,C], kernel[kh,kw,C/g,O], mask[B,Ho,Wo], bias f32[O], base[B,Ho,Wo,O], residual like it
    -> [B,Ho,Wo,O]. The sums and what follows are in float32.
    """
    if x_mask is not None:
        x = where_set(x_mask, x)
    padding, up = geometry.padding, geometry.lhs_dilation
    if min(padding[0] + padding[1]) < 0:  # XLA:CPU is wrong where a negative side meets a positive
        sides = [(*p, u - 1) for p, u in zip(padding, up, strict=True)]
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *sides, (0, 0, 0)])
        padding, up = ((0, 0), (0, 0)), (1, 1)
    shape = (*mask.shape, kernel.shape[-1])
    if 0 in (*x.shape, *kernel.shape, *shape):
        y = jnp.zeros(shape, jnp.float32)
    else:
        y = lax.conv_general_dilated(
            x,
            kernel,
            geometry.strides,
            padding,
            lhs_dilation=up,
            rhs_dilation=geometry.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=geometry.groups,
            precision=precision,
            preferred_element_type=sum_dtype,
        ).astype(jnp.float32)
    y = y if bias is None else y + jnp.expand_dims(bias, (0, 1, 2))
    if residual is not None:  # what lies under an unset pixel may be NaN, to derivatives, too
        y = y + where_set(mask, residual).astype(jnp.float32)
    return where_set(mask, ACTIVATIONS[activation](y).astype(out_dtype), base)
