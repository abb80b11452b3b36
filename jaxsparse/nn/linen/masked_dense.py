"""`js.nn.linen.MaskedDense`: flax.linen's Dense at the tokens that count."""

from __future__ import annotations

from flax import linen

from jaxsparse.core.checks import check_activation, check_positive
from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.nn.dense import MaskedDenseCall
from jaxsparse.nn.linen.layer import Layer


class MaskedDense(MaskedDenseCall, Layer, linen.Dense):
    """flax's Dense, computed only where a token mask holds.

    It has every field of `flax.linen.Dense` with its name, default and meaning, and the same
    parameters: a checkpoint of a Dense loads unchanged, both ways. Two more fields:

    Attributes:
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made with an unknown activation or implementation,
            with its own dot_general, or with features that are not a positive int.
    """

    activation: Activation | None = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        check_activation(self.activation)
        check_positive("features", self.features)
        wishes(self.implementation)
        if self.dot_general is not None or self.dot_general_cls is not None:
            raise ValueError("dot_general: MaskedDense brings its own product")
        super().__post_init__()
