"""`js.nn.linen.MaskedConv`: flax.linen's Conv, computed where a spatial mask holds."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.nn import conv
from jaxsparse.nn.checks import check_dtypes
from jaxsparse.recorder import Recorder


class MaskedConv(linen.Conv):
    """flax's 2-D Conv, computed only where a spatial mask holds.

    Every field of `flax.linen.Conv` with its name, default and meaning (`mask` is flax's mask on
    the *weights*), and the same parameters: a checkpoint of a Conv loads unchanged, both ways.
    Three more fields:

    Attributes:
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), fused behind the bias.
        record: with activation="relu6", return the result's exact recorder, too: codes of all
            channels of a pixel (True), or of so many at a time. `Sequential` hands it on.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        ValueError: when the layer is made with an option that the masked form cannot take: a kernel
            that is not 2-D, input_dilation other than 1, CIRCULAR, REFLECT or CAUSAL padding,
            another convolution function.
    """

    TAKES: ClassVar[tuple[str, ...]] = ("mask", "recorder")

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

    @linen.compact
    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: Float[ArrayLike, "*batch H W C"],
        mask: Bool[ArrayLike, "*batch Ho Wo"] | TileIndex | None = None,
        *,
        base: Float[ArrayLike, "*batch Ho Wo features"] | None = None,
        residual: Float[ArrayLike, "*batch Ho Wo features"] | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Array, "*batch Ho Wo features"]:
        """`where(mask, activation(conv(inputs) + bias + residual), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, H, W, C]; promoted with the parameters
                as in flax.
            mask: the output pixels to compute, bool[*batch, Ho, Wo] or a `js.TileIndex` of
                all batch axes flattened; None computes every pixel with XLA's dense convolution,
                exactly like flax.
            base: what the other pixels are, in the result's dtype; None means zeros. Not read when
                `mask` is None.
            residual: added before the activation, in the result's shape and dtype.
            recorder: of the inputs, as the layer before returned it.

        Returns:
            [*batch, Ho, Wo, features] in the promoted dtype. With `record` a pair: that, and
            its `js.recorder.Recorder`.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        conv.check_inputs(inputs, self.feature_group_count)
        inputs = jnp.asarray(inputs)
        if mask is None:
            y = super().__call__(conv.known(inputs, recorder))
            options = (self.activation, residual, self.record, self.implementation)
            return conv.finish_dense(y, *options)
        shape = (*self.kernel_size, inputs.shape[-1] // self.feature_group_count, self.features)  # pyright: ignore
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        if self.mask is not None:
            if self.mask.shape != shape:
                raise ValueError(f"mask has shape {self.mask.shape}; the kernel has {shape}")
            kernel = kernel * self.mask
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype)
        x, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        return self._masked(x, kernel, bias, mask, base, residual, recorder)

    def _masked(
        self,
        x: jax.Array | None,
        kernel: jax.Array | None,
        bias: jax.Array | None,
        mask: ArrayLike | TileIndex,
        base: ArrayLike | None,
        residual: ArrayLike | None,
        recorder: Recorder | None,
    ) -> Any:
        assert x is not None
        assert kernel is not None
        return conv.run(
            x,
            kernel,
            bias,
            mask,
            base,
            residual,
            recorder,
            strides=self.strides,
            padding=self.padding,
            kernel_dilation=self.kernel_dilation,
            groups=self.feature_group_count,
            activation=self.activation,
            precision=self.precision,
            preferred_element_type=None,
            record=self.record,
            implementation=self.implementation,
        )
