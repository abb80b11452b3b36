"""What the linen and the nnx `MaskedConv` share: the options they refuse, and the masked call."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.ops import masked_conv
from jaxsparse.ops.checks import check_activation
from jaxsparse.reference.activations import ACTIVATIONS

STRINGS = ("SAME", "SAME_LOWER", "VALID")


def check_options(
    kernel_size: Any, padding: Any, input_dilation: Any, activation: str | None
) -> None:
    """Refuse the options of flax's Conv that a spatially masked convolution cannot take.

    Raises:
        ValueError: naming the argument, what came, and what is needed.
    """
    if isinstance(kernel_size, int) or len(kernel_size) != 2:
        raise ValueError(
            f"kernel_size={kernel_size!r}: MaskedConv is 2-D and takes two ints "
            "(flax reads a single int as a 1-D kernel)"
        )
    if isinstance(padding, str) and padding.upper() not in STRINGS:
        raise ValueError(
            f"padding={padding!r}: MaskedConv takes {', '.join(STRINGS)}, an int, "
            "or two (low, high) pairs"
        )
    if input_dilation not in (None, 1) and set(_values(input_dilation)) != {1}:
        raise ValueError(f"input_dilation={input_dilation!r}: MaskedConv takes only 1")
    check_activation(activation)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) else (value,)


def two(value: Any) -> tuple[int, int]:
    """flax's None, int or sequence, as two ints."""
    value = 1 if value is None else value
    return (value, value) if isinstance(value, int) else tuple(value)


def finish_dense(y: jax.Array, activation: str | None) -> jax.Array:
    """The activation after flax's own dense convolution, in the dtype of its result."""
    return y if activation is None else ACTIVATIONS[activation](y)


def run(
    x: Float[Array, "*batch H W C"],
    kernel: Float[Array, "kh kw C/g O"],
    bias: Float[Array, "O"] | None,
    spatial_mask: Bool[Array, "*batch Ho Wo"] | TileIndex,
    base: Float[Array, "*batch Ho Wo O"] | None,
    *,
    strides: Any,
    padding: Any,
    kernel_dilation: Any,
    groups: int,
    activation: str | None,
    precision: Any,
    preferred_element_type: Any,
    implementation: Implementation,
) -> Float[Array, "*batch Ho Wo O"]:
    """`js.masked_conv` with any number of batch axes, as flax's Conv has them.

    A TileIndex speaks of all batch axes flattened into one.

    Raises:
        TypeError, ValueError: for a rank that does not fit, and what `js.masked_conv` raises.
    """
    if x.ndim < 3:
        raise ValueError(f"inputs has shape {x.shape}; it needs (*batch, H, W, C)")
    batch = x.shape[:-3]
    many = math.prod(batch)
    if not isinstance(spatial_mask, TileIndex):
        spatial_mask = jnp.asarray(spatial_mask)
        if spatial_mask.dtype != np.bool_:
            raise TypeError(
                f"spatial_mask has dtype {spatial_mask.dtype}; it takes bool, or a TileIndex "
                "(flax's weight mask is the layer's `mask`)"
            )
        if spatial_mask.shape[:-2] != batch or spatial_mask.ndim != x.ndim - 1:
            raise ValueError(
                f"spatial_mask has shape {spatial_mask.shape}; inputs {x.shape} needs "
                f"{(*batch, 'Ho', 'Wo')}"
            )
        spatial_mask = spatial_mask.reshape(many, *spatial_mask.shape[-2:])
    if base is not None:
        if base.ndim != x.ndim or base.shape[:-3] != batch:
            raise ValueError(
                f"base has shape {base.shape}; inputs {x.shape} needs "
                f"{(*batch, 'Ho', 'Wo', kernel.shape[3])}"
            )
        base = base.reshape(many, *base.shape[-3:])
    y = masked_conv(
        x.reshape(many, *x.shape[-3:]),
        kernel,
        spatial_mask,
        strides=two(strides),
        padding=padding,
        dilation=two(kernel_dilation),
        groups=groups,
        bias=bias,
        activation=activation,
        base=base,
        precision=precision,
        preferred_element_type=preferred_element_type,
        implementation=implementation,
    )
    return y.reshape(*batch, *y.shape[1:])
