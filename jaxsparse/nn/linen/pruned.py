"""`js.nn.linen.PrunedDense` and `PrunedConv`: flax.linen's layers on the kept weights."""

from __future__ import annotations

from flax import linen
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.nn.linen.layer import Layer
from jaxsparse.nn.pruned_layers import check_conv, check_dense, run_conv, run_dense
from jaxsparse.pruned.weight import PrunedWeight


class PrunedDense(Layer, linen.Dense):
    """flax's Dense that only multiplies by the kept entries of its kernel.

    It has every field of `flax.linen.Dense` with its name, default and meaning, and the same
    parameters: a checkpoint of a Dense loads unchanged, both ways. The kernel's entries that the
    plan prunes are neither read nor trained. Three more fields:

    Attributes:
        pruned: from `js.pruned.inspect`: which entries are kept (its values are not used).
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made without a plan for a product of as many
            features, with an unknown activation, or with its own dot_general.
    """

    pruned: PrunedWeight | None = None
    activation: Activation | None = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        own = self.dot_general is not None or self.dot_general_cls is not None
        check_dense(self.pruned, self.features, self.activation, own)
        super().__post_init__()

    def __call__(self, inputs: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch features"]:
        """`activation(inputs @ kernel + bias)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d]; promoted with the parameters as in
                flax.

        Returns:
            [*batch, features] in the promoted dtype.

        Raises:
            TypeError, ValueError: for a wrong shape or dtype, naming the argument.
        """
        assert self.pruned is not None
        return run_dense(self, inputs, self.pruned.plan)


class PrunedConv(Layer, linen.Conv):
    """flax's 2-D Conv that only multiplies by the kept entries of its kernel.

    It has every field of `flax.linen.Conv` with its name, default and meaning (but `mask`: the plan
    is the mask; and padding "CAUSAL", which is for 1-D), and the same parameters: a checkpoint of a
    Conv loads unchanged, both ways. Three more fields:

    Attributes:
        pruned: from `js.pruned.inspect(kernel, kind="conv")`: which entries are kept.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made without a plan for a convolution of as many
            features, window and groups, or with an option that the pruned form cannot take.
    """

    pruned: PrunedWeight | None = None
    activation: Activation | None = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        check_conv(
            self.pruned,
            self.features,
            self.kernel_size,
            self.feature_group_count,
            self.mask,
            self.input_dilation,
            self.activation,
            self.conv_general_dilated is not None or self.conv_general_dilated_cls is not None,
        )
        super().__post_init__()

    def __call__(
        self, inputs: Float[ArrayLike, "*batch H W C"]
    ) -> Float[Array, "*batch Ho Wo features"]:
        """`activation(conv(inputs, kernel) + bias)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, H, W, C]; promoted with the parameters
                as in flax.

        Returns:
            [*batch, Ho, Wo, features] in the promoted dtype.

        Raises:
            TypeError, ValueError: for a wrong shape or dtype, naming the argument.
        """
        assert self.pruned is not None
        return run_conv(self, inputs, self.pruned.plan)
