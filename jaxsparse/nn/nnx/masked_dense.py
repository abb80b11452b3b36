"""`js.nn.nnx.MaskedDense`: flax.nnx's Linear at the tokens that count."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype
from flax.nnx.nn.linear import default_bias_init, default_kernel_init
from flax.typing import PrecisionLike, PromoteDtypeFn
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.checks import check_activation, check_positive
from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.index import TileIndex
from jaxsparse.nn.checks import check_rngs, check_tokens
from jaxsparse.nn.nnx.signature import ConstructorSignature
from jaxsparse.nn.types import Initializer
from jaxsparse.ops import masked_dense


class MaskedDense(nnx.Linear):
    """flax's Linear, computed only where a token mask holds.

    Every argument of `flax.nnx.Linear` with its name, default and meaning, and the same
    parameters: the state of a Linear loads unchanged, both ways. Two more arguments:

    Args:
        in_features: width of the input.
        out_features: width of the result.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Arguments as in flax: use_bias, dtype, param_dtype, precision, kernel_init, bias_init,
    promote_dtype, preferred_element_type, kernel_metadata and bias_metadata. Not taken:
    dot_general.

    Raises:
        TypeError, ValueError: for an unknown activation or implementation, a dot_general, or a
            width that is not a positive int.
    """

    TAKES = ("mask",)
    __signature__ = ConstructorSignature()

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

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: Float[ArrayLike, "*batch d"],
        mask: Bool[ArrayLike, "*batch"] | TileIndex | None = None,
        *,
        base: Float[ArrayLike, "*batch n"] | None = None,
    ) -> Float[Array, "*batch n"]:
        """`where(mask, activation(linear(inputs)), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.
            mask: bool[*batch] or an index of it (`jaxsparse.token_index`);
                None computes every token with XLA's dense product, exactly like flax.
            base: what the other tokens are, in the result's dtype; None means zeros. Not read when
                `mask` is None.

        Returns:
            [*batch, out_features] in the promoted dtype, or in `preferred_element_type`, which
            with a mask is that dtype or float32.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        check_tokens(inputs, mask, base)
        inputs = jnp.asarray(inputs)
        if mask is None:
            return ACTIVATIONS[self.activation](super().__call__(inputs))
        bias = None if self.bias is None else self.bias[...]
        x, kernel, bias = self.promote_dtype((inputs, self.kernel[...], bias), dtype=self.dtype)
        return masked_dense(
            x,
            kernel,
            mask,
            bias=bias,
            activation=self.activation,
            base=base,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
            implementation=self.implementation,
        )
