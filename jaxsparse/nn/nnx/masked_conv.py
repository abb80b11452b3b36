"""`js.nn.nnx.MaskedConv`: flax.nnx's Conv, computed where a spatial mask holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype
from flax.nnx.nn.linear import default_bias_init, default_kernel_init
from flax.typing import PrecisionLike, PromoteDtypeFn
from jax.typing import DTypeLike

from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn import conv
from jaxsparse.nn.checks import check_dtypes
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import Initializer, MaskedPadding, Steps


class MaskedConv(conv.MaskedConvCall, Layer, nnx.Conv):
    """flax's 2-D Conv, computed only where a spatial mask holds.

    It has every argument of `flax.nnx.Conv` with its name, default and meaning (`mask` is flax's
    mask on the *weights*), and the same parameters: the state of a Conv loads unchanged, both ways.
    Three more arguments, `activation`, `record` and `implementation`:

    Args:
        in_features: channels of the input.
        out_features: channels of the result.
        kernel_size: two ints.
        strides: one or two positive ints; None is 1.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        record: with activation="relu6", return the result's exact recorder, too: one code for all
            channels of a pixel (True), or for each run of this many channels (an int).
            `Sequential` passes it to the next layer.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Arguments as in flax: padding, kernel_dilation, feature_group_count, use_bias, mask, dtype,
    param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type,
    kernel_metadata and bias_metadata. Not accepted: input_dilation and conv_general_dilated.

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
        strides: Steps = 1,
        *,
        padding: MaskedPadding = "SAME",
        input_dilation: Steps = 1,
        kernel_dilation: Steps = 1,
        feature_group_count: int = 1,
        use_bias: bool = True,
        mask: jax.Array | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        precision: PrecisionLike = None,
        kernel_init: Initializer = default_kernel_init,
        bias_init: Initializer = default_bias_init,
        conv_general_dilated: None = None,
        promote_dtype: PromoteDtypeFn = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        activation: Activation | None = None,
        record: bool | int = False,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        kernel_metadata: Mapping[str, object] = MappingProxyType({}),
        bias_metadata: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        conv.check_options(
            kernel_size,
            padding,
            input_dilation,
            activation,
            feature_group_count,
            out_features,
            record,
        )
        check_dtypes(dtype=dtype, param_dtype=param_dtype)
        if conv_general_dilated is not None:
            raise ValueError("conv_general_dilated: MaskedConv brings its own convolution")
        super().__init__(
            in_features,
            out_features,
            kernel_size,
            strides,
            padding=padding,
            kernel_dilation=kernel_dilation,
            feature_group_count=feature_group_count,
            use_bias=use_bias,
            mask=mask,
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
        self.activation: Activation | None = activation
        self.record = record
        self.implementation: Implementation = named(implementation)
