"""What the linen and the nnx `MaskedDense` share: the call."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.index import TileIndex
from jaxsparse.nn.checks import check_tokens
from jaxsparse.ops import masked_dense


class MaskedDenseCall:
    """The call of both layers."""

    TAKES: ClassVar[tuple[str, ...]] = ("mask",)

    def __call__(
        self,
        inputs: Float[ArrayLike, "*batch d"],
        mask: Bool[ArrayLike, "*batch"] | TileIndex | None = None,
        *,
        base: Float[ArrayLike, "*batch n"] | None = None,
    ) -> Float[Array, "*batch n"]:
        """`where(mask, activation(dense(inputs)), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.
            mask: bool[*batch] or an index of it (`jaxsparse.token_index`);
                None computes every token with XLA's dense product, exactly like flax.
            base: what the other tokens are, in the result's dtype; None means zeros. Not read when
                `mask` is None.

        Returns:
            [*batch, n] in the promoted dtype, or in nnx's `preferred_element_type`, which with a
            mask is that dtype or float32.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        layer: Any = self
        check_tokens(inputs, mask, base)
        inputs = jnp.asarray(inputs)
        if mask is None:
            return ACTIVATIONS[layer.activation](layer._dense(inputs))
        x, kernel, bias = layer._promoted(inputs, *layer._parameters(inputs))
        return masked_dense(
            x,
            kernel,
            mask,
            bias=bias,
            activation=layer.activation,
            base=base,
            precision=layer.precision,
            preferred_element_type=getattr(layer, "preferred_element_type", None),
            implementation=layer.implementation,
        )
