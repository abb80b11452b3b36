"""What the linen and the nnx layers of frozen weights share: the options they refuse, and the call
with any number of batch axes.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import check_activation
from jaxsparse.core.types import Activation
from jaxsparse.nn.checks import check_array
from jaxsparse.nn.conv import two
from jaxsparse.ops import pruned_conv, pruned_matmul
from jaxsparse.ops.pruned_matmul.api import check_plan
from jaxsparse.pruned.plan import Plan
from jaxsparse.pruned.weight import PrunedWeight

_AROUND: dict[str, Any] = {"CIRCULAR": "wrap", "REFLECT": "reflect"}


def check_dense(
    pruned: Any, features: int, activation: Activation | None, own_product: bool
) -> None:
    """Refuse what a PrunedDense cannot take.

    Raises:
        TypeError, ValueError: naming the argument, what came, and what is needed.
    """
    check_plan(pruned, "matmul")
    check_activation(activation)
    _check_features(pruned, features)
    if own_product:
        raise ValueError("dot_general: PrunedDense brings its own product")


def check_conv(
    pruned: Any,
    features: int,
    kernel_size: Any,
    groups: int,
    mask: Any,
    input_dilation: Any,
    activation: Activation | None,
    own_convolution: bool,
) -> None:
    """Refuse what a PrunedConv cannot take.

    Raises:
        TypeError, ValueError: naming the argument, what came, and what is needed.
    """
    check_plan(pruned, "conv")
    check_activation(activation)
    _check_features(pruned, features)
    size = () if isinstance(kernel_size, int) else tuple(kernel_size)
    if size != pruned.pattern.window:
        raise ValueError(f"kernel_size={kernel_size!r}; the plan has {pruned.pattern.window}")
    if groups != pruned.pattern.groups:
        raise ValueError(
            f"feature_group_count={groups}; the plan has {pruned.pattern.groups} groups"
        )
    if mask is not None:
        raise ValueError("mask: the plan says which weights of a PrunedConv are kept")
    if two(input_dilation) != (1, 1):
        raise ValueError(f"input_dilation={input_dilation!r}: PrunedConv takes only 1")
    if own_convolution:
        raise ValueError("conv_general_dilated: PrunedConv brings its own convolution")


def _check_features(pruned: PrunedWeight, features: int) -> None:
    if features != pruned.pattern.n_out:
        raise ValueError(f"features={features}; the plan has {pruned.pattern.n_out} outputs")


def run_dense(layer: Any, inputs: ArrayLike, plan: Plan) -> Float[Array, "*batch n"]:
    """The call of a PrunedDense with this plan.

    Raises:
        TypeError, ValueError: naming the argument; and what `js.pruned_matmul` raises.
    """
    check_array("inputs", inputs, "d")
    x, weight, options = _given(layer, inputs, plan)
    return pruned_matmul(x, weight, **options)


def run_conv(layer: Any, inputs: ArrayLike, plan: Plan) -> Float[Array, "*batch Ho Wo O"]:
    """The call of a PrunedConv with this plan, with any number of batch axes and the paddings that
    flax's Conv has.

    Raises:
        TypeError, ValueError: naming the argument; and what `js.pruned_conv` raises.
    """
    check_array("inputs", inputs, "H W C")
    x, weight, options = _given(layer, inputs, plan)
    batch = x.shape[:-3]
    flat = x.reshape(math.prod(batch), *x.shape[-3:])
    padding, pads, dilation = layer.padding, layer.padding, two(layer.kernel_dilation)
    if isinstance(padding, str) and padding in _AROUND:
        flat = _around(flat, padding, weight.pattern.window or (1, 1), dilation)
        pads = "VALID"
    y = pruned_conv(
        flat, weight, strides=two(layer.strides), padding=pads, dilation=dilation, **options
    )
    return y.reshape(*batch, *y.shape[1:])


def _given(
    layer: Any, inputs: ArrayLike, plan: Plan
) -> tuple[jax.Array, PrunedWeight, dict[str, Any]]:
    """Inputs and weight of one dtype, and what both operations take of the layer."""
    inputs = jnp.asarray(inputs)
    kernel, bias = layer._parameters(inputs)
    weight = PrunedWeight.of_kernel(plan, kernel)
    x, values, bias = layer._promoted(inputs, weight.values, bias)
    options = {
        "bias": bias,
        "activation": layer.activation,
        "precision": layer.precision,
        "preferred_element_type": getattr(layer, "preferred_element_type", None),
        "implementation": layer.implementation,
    }
    return x, weight.with_values(values), options


def _around(x: jax.Array, padding: str, window: tuple[int, int], dilation: Any) -> jax.Array:
    """x [B, H, W, C] with what flax's Conv puts around it."""
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    pads = [(0, 0), *((r // 2, (r + 1) // 2) for r in reach), (0, 0)]
    return jnp.pad(x, pads, mode=_AROUND[padding])


def check_out_sharding(out_sharding: Any) -> None:
    """`out_sharding` is None.

    Raises:
        ValueError: for another one.
    """
    if out_sharding is not None:
        raise ValueError("out_sharding: a frozen weight has none; use jax.shard_map")
