"""`js.nn.linen.MaskedConv`: flax.linen's Conv, computed where a spatial mask holds."""

from __future__ import annotations

from flax import linen

from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.nn import conv
from jaxsparse.nn.checks import check_dtypes
from jaxsparse.nn.linen.layer import Layer


class MaskedConv(conv.MaskedConvCall, Layer, linen.Conv):
    """flax's 2-D Conv, computed only where a spatial mask holds.

    It has every field of `flax.linen.Conv` with its name, default and meaning (`mask` is flax's
    mask on the *weights*), and the same parameters: a checkpoint of a Conv loads unchanged, both
    ways. Three more fields:

    Attributes:
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused after the bias.
        record: with activation="relu6", return the result's exact recorder, too: one code for all
            channels of a pixel (True), or for each run of this many channels (an int).
            `Sequential` passes it to the next layer.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        ValueError: when the layer is made with an option that the masked form cannot take: a kernel
            that is not 2-D, input_dilation other than 1, CIRCULAR, REFLECT or CAUSAL padding,
            another convolution function.
    """

    activation: Activation | None = None
    record: bool | int = False
    implementation: Implementation = None

    def __post_init__(self) -> None:
        conv.check_options(
            self.kernel_size,
            self.padding,
            self.input_dilation,
            self.activation,
            self.feature_group_count,
            self.features,
            self.record,
        )
        check_dtypes(dtype=self.dtype, param_dtype=self.param_dtype)
        if self.conv_general_dilated is not None or self.conv_general_dilated_cls is not None:
            raise ValueError("conv_general_dilated: MaskedConv brings its own convolution")
        super().__post_init__()
