"""What the linen and the nnx `MaskedConv` share: the options they refuse, and the masked call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.checks import check_activation, check_float
from jaxsparse.core.geometry import Geometry, pair, resolve_padding
from jaxsparse.core.masks import check_mask
from jaxsparse.core.types import Activation
from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import OF_RESULT
from jaxsparse.nn.checks import check_array, check_like_result
from jaxsparse.ops import masked_conv
from jaxsparse.ops.masked_conv.recorded import check_record, record_channels
from jaxsparse.recorder import Recorder
from jaxsparse.recorder.types import check_recorder

STRINGS = ("SAME", "SAME_LOWER", "VALID")
MASK_TAKES = "a bool mask or a TileIndex (flax's mask of weights is an argument of the layer)"


def check_options(
    kernel_size: Any,
    padding: Any,
    input_dilation: Any,
    activation: Activation | None,
    groups: Any,
    features: Any,
    record: Any,
) -> None:
    """Refuse the options of flax's Conv that a spatially masked convolution cannot take.

    Raises:
        ValueError: naming the argument, what came, and what is needed.
    """
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise ValueError(f"feature_group_count={groups!r}; it takes a positive int")
    if isinstance(features, int) and features % groups:
        raise ValueError(f"{features} features are not a multiple of feature_group_count={groups}")
    if isinstance(kernel_size, int) or len(kernel_size) != 2:
        raise ValueError(
            f"kernel_size={kernel_size!r}: MaskedConv is 2-D and takes two ints "
            "(flax reads a single int as a 1-D kernel)"
        )
    if isinstance(padding, str) and padding.upper() not in STRINGS:
        raise ValueError(
            f"padding={padding!r}: MaskedConv takes {', '.join(STRINGS)}, an int, "
            "or two (low, high) pairs"
        )
    if input_dilation not in (None, 1) and set(_values(input_dilation)) != {1}:
        raise ValueError(f"input_dilation={input_dilation!r}: MaskedConv takes only 1")
    check_activation(activation)
    check_record(record, activation, features if isinstance(features, int) else 1)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) else (value,)


def two(value: Any) -> tuple[int, int]:
    """flax's None, int or sequence, as two ints."""
    value = 1 if value is None else value
    return (value, value) if isinstance(value, int) else tuple(value)


def check_inputs(inputs: Any, groups: int) -> None:
    """`inputs` is an image or a batch of them, whose channels the groups share.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array("inputs", inputs, "H W C")
    if inputs.shape[-1] % groups:
        raise ValueError(
            f"inputs has shape {tuple(inputs.shape)}: its {inputs.shape[-1]} channels are "
            f"not a multiple of feature_group_count={groups}"
        )


def known(inputs: jax.Array, recorder: Recorder | None) -> jax.Array:
    """`inputs` for a dense convolution, which reads all of it: what the recorder's codes stand for,
    where that is not stored.

    Raises:
        TypeError, ValueError: for a recorder of something else.
    """
    if recorder is None:
        return inputs
    check_recorder("inputs", recorder, inputs.shape)
    return inputs if recorder.stored else recorder.fill(inputs)


def finish_dense(
    y: jax.Array,
    activation: Activation | None,
    residual: ArrayLike | None,
    record: bool | int,
    implementation: Implementation,
) -> Any:
    """The residual and the activation after flax's own dense convolution, in its result's dtype;
    with `record` a pair: that, and its recorder.

    Raises:
        TypeError, ValueError: for a residual that is not like the result.
    """
    if residual is not None:
        check_like_result("residual", residual, y.shape, y.dtype)
        y = y + residual
    y = y if activation is None else ACTIVATIONS[activation](y)
    segment = check_record(record, activation, y.shape[-1])
    return (y, record_channels(y, segment, implementation)) if segment else y


class MaskedConvCall:
    """The call of both layers."""

    TAKES: ClassVar[tuple[str, ...]] = ("mask", "recorder")

    def __call__(
        self,
        inputs: Float[ArrayLike, "*batch H W C"],
        mask: Bool[ArrayLike, "*batch Ho Wo"] | TileIndex | None = None,
        *,
        base: Float[ArrayLike, "*batch Ho Wo O"] | None = None,
        residual: Float[ArrayLike, "*batch Ho Wo O"] | None = None,
        recorder: Recorder | None = None,
        in_channels: Bool[ArrayLike, "C"] | None = None,
        out_channels: Bool[ArrayLike, "O"] | None = None,
    ) -> Float[Array, "*batch Ho Wo O"]:
        """`where(mask, activation(conv(inputs) + bias + residual), base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, H, W, C]; promoted with the parameters
                as in flax.
            mask: the output pixels to compute, bool[*batch, Ho, Wo] or a `js.TileIndex` of
                all batch axes flattened; None computes every pixel: without masks of channels with
                XLA's dense convolution, exactly like flax.
            base: what the other pixels and channels are, in the result's dtype; None means zeros.
                Not read where everything is computed.
            residual: added before the activation, in the result's shape and dtype.
            recorder: of the inputs, as the layer before returned it.
            in_channels: bool[C], the channels of the inputs that count; the others are zero.
            out_channels: bool[O], the outputs to compute; the others are `base`.

        Returns:
            [*batch, Ho, Wo, O] in the promoted dtype, or in nnx's preferred_element_type.
            With `record` a pair: that, and its `js.recorder.Recorder`.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        layer: Any = self
        check_inputs(inputs, layer.feature_group_count)
        inputs = jnp.asarray(inputs)
        if mask is None and in_channels is None and out_channels is None:
            y = layer._dense(known(inputs, recorder))
            options = (layer.activation, residual, layer.record, layer.implementation)
            return finish_dense(y, *options)
        kernel, bias = layer._parameters(inputs)
        if layer.mask is not None:
            if layer.mask.shape != kernel.shape:
                raise ValueError(
                    f"mask has shape {layer.mask.shape}; the kernel has {kernel.shape}"
                )
            kernel = kernel * layer.mask
        x, kernel, bias = layer._promoted(inputs, kernel, bias)
        channels = in_channels, out_channels
        return _run(layer, x, kernel, bias, mask, base, residual, recorder, channels)


def _run(
    layer: Any,
    x: Float[Array, "*batch H W C"],
    kernel: Float[Array, "kh kw C/g O"],
    bias: Float[Array, "O"] | None,
    mask: Bool[ArrayLike, "*batch Ho Wo"] | TileIndex | None,
    base: Float[ArrayLike, "*batch Ho Wo O"] | None,
    residual: Float[ArrayLike, "*batch Ho Wo O"] | None,
    recorder: Recorder | None,
    channels: tuple[Bool[ArrayLike, "C"] | None, Bool[ArrayLike, "O"] | None],
) -> Any:
    """`js.masked_conv` with the layer's options, and with any number of batch axes, as flax's Conv
    has them. `channels` are masks of the input's and of the output's.

    Raises:
        TypeError, ValueError: naming the layer's argument; and what `js.masked_conv` raises.
    """
    check_float("inputs", x)
    steps = pair(two(layer.strides), "strides")
    dilation = pair(two(layer.kernel_dilation), "kernel_dilation")
    groups: int = layer.feature_group_count
    result = getattr(layer, "preferred_element_type", None)
    window = kernel.shape[0], kernel.shape[1]
    if kernel.shape[2] * groups != x.shape[-1]:
        raise ValueError(
            f"inputs has {x.shape[-1]} channels; a kernel {kernel.shape} with "
            f"feature_group_count={groups} takes {kernel.shape[2] * groups}"
        )
    batch, size = x.shape[:-3], x.shape[-3:-1]
    many = math.prod(batch)
    pads = resolve_padding(layer.padding, size, window, steps, dilation)
    out = Geometry(steps, pads, dilation, (1, 1), groups).out_size(size, window)
    if mask is not None and not isinstance(mask, TileIndex):
        of = "the result of these inputs has"
        mask = check_mask(
            "mask", mask, (*batch, *out), fixed=2, of=of, takes=MASK_TAKES, hint=OF_RESULT
        ).reshape(many, *out)
    flat: dict[str, Any] = {}
    for name, given in (("base", base), ("residual", residual)):
        if given is not None:
            shape = (*batch, *out, kernel.shape[3])
            check_like_result(name, given, shape, np.dtype(result or x.dtype))
            flat[name] = jnp.asarray(given).reshape(many, *shape[-3:])
    if recorder is not None:
        check_recorder("inputs", recorder, x.shape)
        flat["recorder"] = _reshaped(recorder, many, *x.shape[-3:-1])
    y: Any = masked_conv(
        x.reshape(many, *x.shape[-3:]),
        kernel,
        mask,
        strides=steps,
        padding=pads,
        dilation=dilation,
        groups=groups,
        bias=bias,
        activation=layer.activation,
        **flat,
        precision=layer.precision,
        preferred_element_type=result,
        record=layer.record,
        in_channels=channels[0],
        out_channels=channels[1],
        implementation=layer.implementation,
    )
    if not layer.record:
        return y.reshape(*batch, *y.shape[1:])
    y, made = y
    return y.reshape(*batch, *y.shape[1:]), _reshaped(made, *batch, *out)


def _reshaped(recorder: Recorder, *pixels: int) -> Recorder:
    """A recorder with other axes in front of the segments."""
    codes = jnp.asarray(recorder.codes)
    return dataclasses.replace(recorder, codes=codes.reshape(*pixels, codes.shape[-1]))
