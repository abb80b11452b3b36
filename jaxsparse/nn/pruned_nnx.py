"""`js.nn.nnx.PrunedDense` and `PrunedConv`: flax.nnx's layers on the kept weights."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxsparse.ffi import Implementation
from jaxsparse.nn.checks import check_array
from jaxsparse.nn.pruned_layers import check_conv, check_dense, check_out_sharding, run_conv
from jaxsparse.ops import pruned_matmul
from jaxsparse.pruned.weight import PrunedWeight


class PrunedDense(nnx.Linear):
    """flax's Linear that only multiplies by the kept entries of its kernel.

    Every argument of `flax.nnx.Linear` with its name, default and meaning, and the same
    parameters: the state of a Linear loads unchanged, both ways. The kernel's entries that the plan
    prunes are neither read nor trained. Three more arguments:

    Args:
        in_features: width of the input.
        out_features: width of the result.
        pruned: from `js.inspect`: which entries are kept (its values are not used).
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.
        **options: use_bias, dtype, param_dtype, precision, preferred_element_type, kernel_init,
            bias_init and so on: as in flax.

    Raises:
        TypeError, ValueError: without a plan for a product of these widths, for an unknown
            activation, or a dot_general.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        pruned: PrunedWeight,
        activation: str | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        check_dense(pruned, out_features, activation, "dot_general" in options)
        if in_features != pruned.pattern.n_in:
            raise ValueError(
                f"in_features={in_features}; the plan has {pruned.pattern.n_in} inputs"
            )
        super().__init__(in_features, out_features, rngs=rngs, **options)
        self.plan = pruned.plan
        self.activation = activation
        self.implementation = implementation

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Float[Array, "*batch d"], out_sharding: None = None
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
        check_array("inputs", inputs, "d")
        bias = None if self.bias is None else self.bias[...]
        kept = PrunedWeight.of_kernel(self.plan, self.kernel[...])
        x, values, bias = self.promote_dtype(
            (jnp.asarray(inputs), kept.values, bias), dtype=self.dtype
        )
        return pruned_matmul(
            x,
            kept.with_values(values),
            bias=bias,
            activation=self.activation,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
            implementation=self.implementation,
        )


class PrunedConv(nnx.Conv):
    """flax's 2-D Conv that only multiplies by the kept entries of its kernel.

    Every argument of `flax.nnx.Conv` with its name, default and meaning (but `mask`: the plan is
    the mask), and the same parameters: the state of a Conv loads unchanged, both ways. Three more
    arguments:

    Args:
        in_features: channels of the input.
        out_features: channels of the result.
        kernel_size: two ints.
        strides: one or two positive ints; None is 1.
        pruned: from `js.inspect(kernel, kind="conv")`: which entries are kept.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.
        **options: padding ("CAUSAL" is for 1-D), kernel_dilation, feature_group_count, use_bias,
            dtype, param_dtype, precision, preferred_element_type, kernel_init, bias_init and so on:
            as in flax.

    Raises:
        TypeError, ValueError: without a plan for a convolution of these channels, window and
            groups, or for an option that the pruned form cannot take.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: Sequence[int],
        strides: int | Sequence[int] | None = 1,
        *,
        pruned: PrunedWeight,
        activation: str | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        check_conv(
            pruned,
            out_features,
            kernel_size,
            options.get("feature_group_count", 1),
            options.get("mask"),
            options.get("input_dilation"),
            activation,
            "conv_general_dilated" in options,
        )
        if in_features != pruned.pattern.channels:
            raise ValueError(
                f"in_features={in_features}; the plan has {pruned.pattern.channels} channels"
            )
        super().__init__(in_features, out_features, kernel_size, strides, rngs=rngs, **options)
        self.plan = pruned.plan
        self.activation = activation
        self.implementation = implementation

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Float[Array, "*batch H W C"], out_sharding: None = None
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
        check_array("inputs", inputs, "H W C")
        bias = None if self.bias is None else self.bias[...]
        kept = PrunedWeight.of_kernel(self.plan, self.kernel[...])
        x, values, bias = self.promote_dtype(
            (jnp.asarray(inputs), kept.values, bias), dtype=self.dtype
        )
        return run_conv(
            x,
            kept.with_values(values),
            bias,
            strides=self.strides,
            padding=self.padding,
            kernel_dilation=self.kernel_dilation,
            activation=self.activation,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
            implementation=self.implementation,
        )
