"""`js.nn.nnx.MaskedDense`: flax.nnx's Linear at the tokens that count."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype
from flax.nnx.nn.linear import default_bias_init, default_kernel_init
from flax.typing import PrecisionLike, PromoteDtypeFn
from jax.typing import DTypeLike

from jaxsparse.core.checks import check_activation, check_positive
from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn.checks import check_rngs
from jaxsparse.nn.dense import MaskedDenseCall
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import Initializer


class MaskedDense(MaskedDenseCall, Layer, nnx.Linear):
    """flax's Linear, computed only where a token mask holds.

    It has every argument of `flax.nnx.Linear` with its name, default and meaning, and the same
    parameters: the state of a Linear loads unchanged, both ways. Two more arguments:

    Args:
        in_features: width of the input.
        out_features: width of the result.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Arguments as in flax: use_bias, dtype, param_dtype, precision, kernel_init, bias_init,
    promote_dtype, preferred_element_type, kernel_metadata and bias_metadata. Not accepted:
    dot_general.

    Raises:
        TypeError, ValueError: for an unknown activation or implementation, a dot_general, or a
            width that is not a positive int.
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
        activation: Activation | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        kernel_metadata: Mapping[str, object] = MappingProxyType({}),
        bias_metadata: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        check_activation(activation)
        in_features = check_positive("in_features", in_features)
        out_features = check_positive("out_features", out_features)
        check_rngs(rngs)
        if dot_general is not None:
            raise ValueError("dot_general: MaskedDense brings its own product")
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
        self.activation: Activation | None = activation
        self.implementation: Implementation = named(implementation)
