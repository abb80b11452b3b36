"""`js.nn.nnx.MaskedDense`: flax.nnx's Linear at the tokens that count."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from jaxsparse.bits.pack import implementation_key
from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.nn.checks import check_rngs, check_tokens
from jaxsparse.ops import masked_dense
from jaxsparse.ops.checks import check_activation, check_positive
from jaxsparse.reference.activations import ACTIVATIONS


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
        **options: use_bias, dtype, param_dtype, precision, kernel_init, bias_init and so on: as in
            flax.

    Raises:
        TypeError, ValueError: for an unknown activation or implementation, a dot_general, or a
            width that is no positive int.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        activation: str | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        check_activation(activation)
        in_features = check_positive("in_features", in_features)
        out_features = check_positive("out_features", out_features)
        check_rngs(rngs)
        if "dot_general" in options:
            raise ValueError("dot_general: MaskedDense brings its own product")
        super().__init__(in_features, out_features, rngs=rngs, **options)
        self.activation = activation
        self.implementation = implementation_key(implementation)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: Float[Array, "*batch d"],
        token_mask: Bool[Array, "*batch"] | TileIndex | None = None,
        *,
        base: Float[Array, "*batch n"] | None = None,
    ) -> Float[Array, "*batch n"]:
        """`where(token_mask, activation(linear(inputs)), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.
            token_mask: bool[*batch] or an index of it (`jaxsparse.token_index`);
                None computes every token with XLA's dense product, exactly like flax.
            base: what the other tokens are, in the result's dtype; None means zeros. Not read when
                `token_mask` is None.

        Returns:
            [*batch, out_features] in the promoted dtype, or in `preferred_element_type`, which
            with a mask is that dtype or float32.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        check_tokens(inputs, token_mask, base)
        if token_mask is None:
            return ACTIVATIONS[self.activation](super().__call__(inputs))
        bias = None if self.bias is None else self.bias[...]
        x, kernel, bias = self.promote_dtype(
            (jnp.asarray(inputs), self.kernel[...], bias), dtype=self.dtype
        )
        return masked_dense(
            x,
            kernel,
            token_mask,
            bias=bias,
            activation=self.activation,
            base=base,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
            implementation=self.implementation,
        )
