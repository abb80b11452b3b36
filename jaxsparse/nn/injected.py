"""Frozen weights in flax's own layers: functions for their `dot_general` and
`conv_general_dilated`.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from jaxsparse.core.checks import check_float
from jaxsparse.core.types import Layout
from jaxsparse.ffi import Implementation
from jaxsparse.nn.conv import two
from jaxsparse.nn.pruned_layers import check_out_sharding
from jaxsparse.ops import pruned_conv, pruned_matmul
from jaxsparse.ops.pruned_matmul.api import check_plan
from jaxsparse.pruned.weight import PrunedWeight

_HWIO = (3, 2, 0, 1)
_LAYOUTS: dict[tuple[int, ...], Layout] = {(0, 3, 1, 2): "NHWC", (0, 1, 2, 3): "NCHW"}


def pruned_dot_general(
    pruned: PrunedWeight, *, from_kernel: bool = False, implementation: Implementation = None
) -> Callable[..., jax.Array]:
    """A `dot_general` for flax's Linear and Dense that multiplies by a frozen weight.

        nnx.Linear(512, 2048, dot_general=js.nn.pruned_dot_general(pruned), rngs=rngs)

    Args:
        pruned: from `js.pruned.inspect(kernel)`.
        from_kernel: take the values from the layer's kernel, at the kept entries (fine-tuning: the
            gradient of the kernel is zero elsewhere); False takes the plan's own values, and of the
            layer's kernel only the shape matters.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A function with `jax.lax.dot_general`'s arguments.

    Raises:
        TypeError, ValueError: when `pruned` is not a plan of a product; the returned function
            raises ValueError for a kernel of another shape or a product that is not `x @ kernel`.
    """
    check_plan(pruned, "matmul")

    def dot_general(
        lhs: jax.Array,
        rhs: jax.Array,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
        *,
        out_sharding: Any = None,
    ) -> jax.Array:
        (contracted, batch) = dimension_numbers
        plain = ((lhs.ndim - 1,), (0,))
        if tuple(map(tuple, contracted)) != plain or any(map(len, batch)):
            raise ValueError(
                f"dimension_numbers={dimension_numbers}: a frozen weight takes {(plain, ((), ()))}"
            )
        check_float("lhs", lhs)
        return pruned_matmul(
            lhs,
            _weight(pruned, rhs, from_kernel, out_sharding).astype(lhs.dtype),
            precision=precision,
            preferred_element_type=preferred_element_type,
            implementation=implementation,
        )

    return dot_general


def pruned_conv_general_dilated(
    pruned: PrunedWeight, *, from_kernel: bool = False, implementation: Implementation = None
) -> Callable[..., jax.Array]:
    """A `conv_general_dilated` for flax's Conv that convolves with a frozen kernel.

        nnx.Conv(64, 64, (3, 3), conv_general_dilated=js.nn.pruned_conv_general_dilated(pruned),
                 rngs=rngs)

    Args:
        pruned: from `js.pruned.inspect(kernel, kind="conv")`, with the layer's groups.
        from_kernel: take the values from the layer's kernel, as in `pruned_dot_general`.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A function with `jax.lax.conv_general_dilated`'s arguments.

    Raises:
        TypeError, ValueError: when `pruned` is not a plan of a convolution; the returned function
            raises ValueError for a kernel of another shape, another layout than NHWC or NCHW with
            HWIO, other groups, an input dilation, or batch groups.
    """
    check_plan(pruned, "conv")

    def conv_general_dilated(
        lhs: jax.Array,
        rhs: jax.Array,
        window_strides: Any,
        padding: Any,
        lhs_dilation: Any = None,
        rhs_dilation: Any = None,
        dimension_numbers: Any = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision: Any = None,
        preferred_element_type: Any = None,
        *,
        out_sharding: Any = None,
    ) -> jax.Array:
        if batch_group_count != 1 or set(lhs_dilation or (1,)) != {1}:
            raise ValueError("a frozen kernel takes no input dilation and no batch groups")
        if feature_group_count != pruned.pattern.groups:
            raise ValueError(
                f"feature_group_count={feature_group_count}; the plan has "
                f"{pruned.pattern.groups} groups"
            )
        check_float("lhs", lhs)
        weight = _weight(pruned, rhs, from_kernel, out_sharding).astype(lhs.dtype)
        return pruned_conv(
            lhs,
            weight,
            strides=two(window_strides),
            padding=padding,
            dilation=two(rhs_dilation),
            precision=precision,
            preferred_element_type=preferred_element_type,
            layout=_layout(lhs, rhs, dimension_numbers),
            implementation=implementation,
        )

    return conv_general_dilated


def _weight(pruned: PrunedWeight, rhs: Any, from_kernel: bool, out_sharding: Any) -> PrunedWeight:
    check_out_sharding(out_sharding)
    if tuple(rhs.shape) != pruned.shape:
        raise ValueError(f"the kernel has shape {tuple(rhs.shape)}; the plan is of {pruned.shape}")
    return pruned.from_dense(rhs) if from_kernel else pruned


def _layout(lhs: Any, rhs: Any, dimension_numbers: Any) -> Layout:
    found = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    layout = _LAYOUTS.get(tuple(found.lhs_spec))
    if found.lhs_spec != found.out_spec or layout is None or tuple(found.rhs_spec) != _HWIO:
        raise ValueError(
            f"dimension_numbers={dimension_numbers}: a frozen kernel takes NHWC or NCHW, and HWIO"
        )
    return layout
