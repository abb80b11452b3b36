"""`js.nn.linen.MaskedDense`: flax.linen's Dense at the tokens that count."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from flax import linen
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.checks import check_activation, check_positive
from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.index import TileIndex
from jaxsparse.nn.checks import check_tokens
from jaxsparse.ops import masked_dense


class MaskedDense(linen.Dense):
    """flax's Dense, computed only where a token mask holds.

    Every field of `flax.linen.Dense` with its name, default and meaning, and the same parameters:
    a checkpoint of a Dense loads unchanged, both ways. Two more fields:

    Attributes:
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made with an unknown activation or implementation,
            with its own dot_general, or with features that are not a positive int.
    """

    TAKES: ClassVar[tuple[str, ...]] = ("mask",)

    activation: Activation | None = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        check_activation(self.activation)
        check_positive("features", self.features)
        wishes(self.implementation)
        if self.dot_general is not None or self.dot_general_cls is not None:
            raise ValueError("dot_general: MaskedDense brings its own product")
        super().__post_init__()

    @linen.compact
    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: Float[ArrayLike, "*batch d"],
        mask: Bool[ArrayLike, "*batch"] | TileIndex | None = None,
        *,
        base: Float[ArrayLike, "*batch features"] | None = None,
    ) -> Float[Array, "*batch features"]:
        """`where(mask, activation(dense(inputs)), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.
            mask: bool[*batch] or an index of it (`jaxsparse.token_index`);
                None computes every token with XLA's dense product, exactly like flax.
            base: what the other tokens are, in the result's dtype; None means zeros. Not read when
                `mask` is None.

        Returns:
            [*batch, features] in the promoted dtype.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        check_tokens(inputs, mask, base)
        inputs = jnp.asarray(inputs)
        if mask is None:
            return ACTIVATIONS[self.activation](super().__call__(inputs))
        shape = (inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype)
        x, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        return masked_dense(
            x,  # pyright: ignore[reportArgumentType]
            kernel,  # pyright: ignore[reportArgumentType]
            mask,
            bias=bias,
            activation=self.activation,
            base=base,
            precision=self.precision,
            implementation=self.implementation,
        )
