"""`js.nn.nnx.PrunedDense` and `PrunedConv`: flax.nnx's layers on the kept weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype
from flax.nnx.nn.linear import default_bias_init, default_kernel_init
from flax.typing import PrecisionLike, PromoteDtypeFn
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.pruned_layers import (
    check_conv,
    check_dense,
    check_out_sharding,
    run_conv,
    run_dense,
)
from jaxsparse.nn.types import Initializer, PrunedPadding, Steps
from jaxsparse.pruned.weight import PrunedWeight


class PrunedDense(Layer, nnx.Linear):
    """flax's Linear that only multiplies by the kept entries of its kernel.

    It has every argument of `flax.nnx.Linear` with its name, default and meaning, and the same
    parameters: the state of a Linear loads unchanged, both ways. The kernel's entries that the plan
    prunes are neither read nor trained. Three more arguments:

    Args:
        in_features: width of the input.
        out_features: width of the result.
        pruned: from `js.pruned.inspect`: which entries are kept (its values are not used).
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Arguments as in flax: use_bias, dtype, param_dtype, precision, kernel_init, bias_init,
    promote_dtype, preferred_element_type, kernel_metadata and bias_metadata. Not accepted:
    dot_general.

    Raises:
        TypeError, ValueError: without a plan for a product of these widths, for an unknown
            activation, or a dot_general.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        precision: PrecisionLike = None,
        kernel_init: Initializer = default_kernel_init,
        bias_init: Initializer = default_bias_init,
        dot_general: None = None,
        promote_dtype: PromoteDtypeFn = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        pruned: PrunedWeight,
        activation: Activation | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        kernel_metadata: Mapping[str, object] = MappingProxyType({}),
        bias_metadata: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        check_dense(pruned, out_features, activation, dot_general is not None)
        if in_features != pruned.pattern.n_in:
            raise ValueError(
                f"in_features={in_features}; the plan has {pruned.pattern.n_in} inputs"
            )
        super().__init__(
            in_features,
            out_features,
            use_bias=use_bias,
            dtype=dtype,
            param_dtype=param_dtype,
            precision=precision,
            kernel_init=kernel_init,
            bias_init=bias_init,
            promote_dtype=promote_dtype,
            preferred_element_type=preferred_element_type,
            rngs=rngs,
            kernel_metadata=kernel_metadata,
            bias_metadata=bias_metadata,
        )
        self.plan = pruned.plan
        self.activation: Activation | None = activation
        self.implementation: Implementation = named(implementation)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Float[ArrayLike, "*batch d"], out_sharding: None = None
    ) -> Float[Array, "*batch n"]:
        """`activation(inputs @ kernel + bias)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.
            out_sharding: only None: a frozen weight has no other.

        Returns:
            [*batch, out_features] in the promoted dtype, or in preferred_element_type, which is
            that dtype or float32.

        Raises:
            TypeError, ValueError: for a wrong shape or dtype, naming the argument.
        """
        check_out_sharding(out_sharding)
        return run_dense(self, inputs, self.plan)


class PrunedConv(Layer, nnx.Conv):
    """flax's 2-D Conv that only multiplies by the kept entries of its kernel.

    It has every argument of `flax.nnx.Conv` with its name, default and meaning (but `mask`: the
    plan is the mask), and the same parameters: the state of a Conv loads unchanged, both ways.
    Three more arguments:

    Args:
        in_features: channels of the input.
        out_features: channels of the result.
        kernel_size: two ints.
        strides: one or two positive ints; None is 1.
        pruned: from `js.pruned.inspect(kernel, kind="conv")`: which entries are kept.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.
        padding: as in flax; "CAUSAL" is for 1-D.

    Arguments as in flax: kernel_dilation, feature_group_count, use_bias, dtype, param_dtype,
    precision, kernel_init, bias_init, promote_dtype, preferred_element_type, kernel_metadata
    and bias_metadata. Not accepted: input_dilation, mask and conv_general_dilated.

    Raises:
        TypeError, ValueError: without a plan for a convolution of these channels, window and
            groups, or for an option that the pruned form cannot take.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: Sequence[int],
        strides: Steps = 1,
        *,
        padding: PrunedPadding = "SAME",
        input_dilation: Steps = 1,
        kernel_dilation: Steps = 1,
        feature_group_count: int = 1,
        use_bias: bool = True,
        mask: None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        precision: PrecisionLike = None,
        kernel_init: Initializer = default_kernel_init,
        bias_init: Initializer = default_bias_init,
        conv_general_dilated: None = None,
        promote_dtype: PromoteDtypeFn = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        pruned: PrunedWeight,
        activation: Activation | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        kernel_metadata: Mapping[str, object] = MappingProxyType({}),
        bias_metadata: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        check_conv(
            pruned,
            out_features,
            kernel_size,
            feature_group_count,
            mask,
            input_dilation,
            activation,
            conv_general_dilated is not None,
        )
        if in_features != pruned.pattern.channels:
            raise ValueError(
                f"in_features={in_features}; the plan has {pruned.pattern.channels} channels"
            )
        super().__init__(
            in_features,
            out_features,
            kernel_size,
            strides,
            padding=padding,
            kernel_dilation=kernel_dilation,
            feature_group_count=feature_group_count,
            use_bias=use_bias,
            dtype=dtype,
            param_dtype=param_dtype,
            precision=precision,
            kernel_init=kernel_init,
            bias_init=bias_init,
            promote_dtype=promote_dtype,
            preferred_element_type=preferred_element_type,
            rngs=rngs,
            kernel_metadata=kernel_metadata,
            bias_metadata=bias_metadata,
        )
        self.plan = pruned.plan
        self.activation: Activation | None = activation
        self.implementation: Implementation = named(implementation)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Float[ArrayLike, "*batch H W C"], out_sharding: None = None
    ) -> Float[Array, "*batch Ho Wo O"]:
        """`activation(conv(inputs, kernel) + bias)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, H, W, C]; promoted with the parameters
                as in flax.
            out_sharding: only None: a frozen kernel has no other.

        Returns:
            [*batch, Ho, Wo, out_features] in the promoted dtype, or in preferred_element_type,
            which is that dtype or float32.

        Raises:
            TypeError, ValueError: for a wrong shape or dtype, naming the argument.
        """
        check_out_sharding(out_sharding)
        return run_conv(self, inputs, self.plan)
