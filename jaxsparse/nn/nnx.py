"""Layers for flax.nnx."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.nn import conv
from jaxsparse.nn.checks import check_dtypes
from jaxsparse.nn.masked_dense_nnx import MaskedDense as MaskedDense
from jaxsparse.nn.moe_nnx import MoE as MoE
from jaxsparse.nn.pruned_nnx import PrunedConv as PrunedConv
from jaxsparse.nn.pruned_nnx import PrunedDense as PrunedDense


class MaskedConv(nnx.Conv):
    """flax's 2-D Conv, computed only where a spatial mask holds.

    Every argument of `flax.nnx.Conv` with its name, default and meaning (`mask` is flax's mask on
    the *weights*), and the same parameters: the state of a Conv loads unchanged, both ways.
    Two more arguments, `activation` and `implementation`:

    Args:
        in_features: channels of the input.
        out_features: channels of the result.
        kernel_size: two ints.
        strides: one or two positive ints; None is 1.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.
        **options: padding, kernel_dilation, feature_group_count, use_bias, mask, dtype,
            param_dtype, precision, kernel_init, bias_init, promote_dtype,
            preferred_element_type, kernel_metadata, bias_metadata: as in flax.

    Raises:
        ValueError: for an option that the masked form cannot take: a kernel that is not 2-D,
            input_dilation other than 1, CIRCULAR, REFLECT or CAUSAL padding, another convolution
            function.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: Sequence[int],
        strides: int | Sequence[int] | None = 1,
        *,
        activation: str | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        conv.check_options(
            kernel_size,
            options.get("padding"),
            options.get("input_dilation"),
            activation,
            options.get("feature_group_count", 1),
            out_features,
        )
        check_dtypes(dtype=options.get("dtype"), param_dtype=options.get("param_dtype"))
        if "conv_general_dilated" in options:
            raise ValueError("conv_general_dilated: MaskedConv brings its own convolution")
        super().__init__(in_features, out_features, kernel_size, strides, rngs=rngs, **options)
        self.activation = activation
        self.implementation = (
            implementation
            if implementation is None or isinstance(implementation, str)
            else tuple(implementation)
        )

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: Float[Array, "*batch H W C"],
        spatial_mask: Bool[Array, "*batch Ho Wo"] | TileIndex | None = None,
        *,
        base: Float[Array, "*batch Ho Wo O"] | None = None,
        residual: Float[Array, "*batch Ho Wo O"] | None = None,
    ) -> Float[Array, "*batch Ho Wo O"]:
        """`where(spatial_mask, activation(conv(inputs) + bias + residual), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, H, W, C]; promoted with the parameters
                as in flax.
            spatial_mask: the output pixels to compute, bool[*batch, Ho, Wo] or a `js.TileIndex` of
                all batch axes flattened; None computes every pixel with XLA's dense convolution,
                exactly like flax.
            base: what the other pixels are, in the result's dtype; None means zeros. Not read when
                `spatial_mask` is None.
            residual: added before the activation, in the result's shape and dtype.

        Returns:
            [*batch, Ho, Wo, out_features] in the promoted dtype, or in preferred_element_type.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        conv.check_inputs(inputs, self.feature_group_count)
        if spatial_mask is None:
            return conv.finish_dense(super().__call__(inputs), self.activation, residual)
        kernel = self.kernel[...]
        if self.mask is not None:
            if self.mask.shape != self.kernel_shape:
                raise ValueError(
                    f"mask has shape {self.mask.shape}; the kernel has {self.kernel_shape}"
                )
            kernel = kernel * self.mask
        bias: jax.Array | None = None if self.bias is None else self.bias[...]
        x, kernel, bias = self.promote_dtype((jnp.asarray(inputs), kernel, bias), dtype=self.dtype)
        return conv.run(
            x,
            kernel,
            bias,
            spatial_mask,
            base,
            residual,
            strides=self.strides,
            padding=self.padding,
            kernel_dilation=self.kernel_dilation,
            groups=self.feature_group_count,
            activation=self.activation,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
            implementation=self.implementation,
        )
