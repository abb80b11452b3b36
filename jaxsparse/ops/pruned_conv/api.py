"""`pruned_conv`: a convolution with frozen weights, as a user calls it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import check_offsets, check_rank
from jaxsparse.core.geometry import Geometry, check_steps, pair, resolve_padding
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Activation, Layout, Padding, Pair
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ops.pruned_matmul.api import check_common, check_plan, run
from jaxsparse.ops.pruned_matmul.core import PrunedParams
from jaxsparse.pruned.weight import PrunedWeight

LAYOUTS = ("NHWC", "NCHW")


@takes_variables
def pruned_conv(
    x: Float[ArrayLike, "B H W C"],
    pruned: PrunedWeight,
    *,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    bias: Float[ArrayLike, "O"] | None = None,
    activation: Activation | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    layout: Layout = "NHWC",
    implementation: Implementation = None,
) -> Float[Array, "B Ho Wo O"]:
    """`activation(conv(x, kernel) + bias)` with a frozen, pruned kernel: work for the kept weights
    only.

    Differentiable in x, the kept values and bias. A weight that is closed over is a constant; one
    that is passed to a jitted function is an operand.

    Args:
        x: float32, bfloat16 or float16 [B, H, W, C], or [B, C, H, W] with layout="NCHW"; the dtype
            of the kernel (`pruned.astype`).
        pruned: from `js.pruned.inspect(kernel, kind="conv")`, a kernel of shape
            [kh, kw, C/groups, O].
        strides: one or two positive ints.
        padding: "SAME", "SAME_LOWER", "VALID", an int, or ((top, bottom), (left, right)), of which
            either may be one int.
        dilation: of the kernel, one or two positive ints.
        bias: [O], added in float32.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), applied before rounding.
        precision: as in jax.lax.
        preferred_element_type: the result's dtype: x's dtype (default) or float32.
        layout: of x and of the result, "NHWC" or "NCHW".
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [B, Ho, Wo, O], or [B, O, Ho, Wo].

    Raises:
        TypeError, ValueError: for a weight of another kind, shape or dtype, or a wrong option,
            naming the argument; ValueError when a named implementation cannot run.
    """
    geometry = (strides, padding, dilation)
    options = (bias, activation, precision, preferred_element_type, layout, implementation)
    if is_symbolic(x):
        why = "an executor is made for one height, width and number of channels"
        part: Any = functools.partial(_piece, pruned, geometry, options)
        found: jax.Array = in_pieces(part, {"x": x}, 1, rest=why)
        return found
    return _piece(pruned, geometry, options, x)


def _piece(
    pruned: PrunedWeight, geometry: tuple[Any, ...], options: tuple[Any, ...], x: Any
) -> jax.Array:
    params, x = prepare(x, pruned, *geometry, *options)
    return run(params, x, pruned, options[0])


def prepare(
    x: ArrayLike,
    pruned: PrunedWeight,
    strides: int | tuple[int, int] = 1,
    padding: Padding = "SAME",
    dilation: int | tuple[int, int] = 1,
    bias: ArrayLike | None = None,
    activation: str | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    layout: str = "NHWC",
    implementation: Implementation = None,
) -> tuple[PrunedParams, jax.Array]:
    """The checks of `pruned_conv`: the call's parameters, and x as an array."""
    check_plan(pruned, "conv")
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} is not one of {', '.join(LAYOUTS)}")
    check_rank("x", x, 4, layout)
    x = jnp.asarray(x)
    first = layout == "NCHW"
    channels = x.shape[1] if first else x.shape[3]
    image = x.shape[2:] if first else x.shape[1:3]
    pattern = pruned.pattern
    if channels != pattern.channels:
        other = 3 if first else 1
        turned = f"; is x {LAYOUTS[1 - first]}? layout= says so"
        raise ValueError(
            f"x has {channels} channels in layout={layout!r} {x.shape}; a plan of an HWIO kernel "
            f"{list(pruned.shape)} in {pattern.groups} groups needs {pattern.channels}"
            f"{turned if x.shape[other] == pattern.channels else ''}"
        )
    strides, dilation = pair(strides, "strides"), pair(dilation, "dilation")
    window = pattern.window or (1, 1)
    pads = resolve_padding(padding, image, window, strides, dilation)
    geometry = Geometry(strides, pads, dilation, (1, 1), pattern.groups)
    check_steps(geometry)
    params = check_common(
        x, pruned, bias, activation, precision, preferred_element_type, implementation
    )
    params = dataclasses.replace(params, geometry=geometry, channels_first=first)
    check_offsets("x", x.shape)
    check_offsets("the result", params.out_shape(x))
    return params, x
