"""`masked_conv`: the public function. Checks at trace time, then hands arrays to the differentiable
core.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_activation,
    check_float,
    check_like_result,
    check_match,
    check_offsets,
    check_positive,
    check_rank,
    check_same_dtype,
    result_dtype,
)
from jaxsparse.core.geometry import Geometry, check_steps, pair, resolve_padding
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Activation, Padding, Pair
from jaxsparse.core.variables import unwrap
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import fit_mask
from jaxsparse.ops.masked_conv.core import conv
from jaxsparse.ops.masked_conv.operands import Channels, Operands, check_channels
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.recorded import check_record, conv_known, record_channels
from jaxsparse.ops.masked_conv.run import explain, index_of_mask
from jaxsparse.recorder import Recorder
from jaxsparse.recorder.types import check_recorder
from jaxsparse.select.explain import check_overflow
from jaxsparse.select.masked_conv.problem import OP


@overload
def masked_conv(
    x: Float[ArrayLike, "B H W C"],
    kernel: Float[ArrayLike, "kh kw C/g O"],
    mask: Bool[ArrayLike, "B Ho Wo"] | TileIndex | None,
    *,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    bias: Float[ArrayLike, "O"] | None = None,
    activation: Activation | None = None,
    base: Float[ArrayLike, "B Ho Wo O"] | None = None,
    residual: Float[ArrayLike, "B Ho Wo O"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    record: Literal[False] = False,
    recorder: Recorder | None = None,
    in_channels: Bool[ArrayLike, "C"] | None = None,
    out_channels: Bool[ArrayLike, "O"] | None = None,
    implementation: Implementation = None,
) -> Float[Array, "B Ho Wo O"]: ...


@overload
def masked_conv(
    x: Float[ArrayLike, "B H W C"],
    kernel: Float[ArrayLike, "kh kw C/g O"],
    mask: Bool[ArrayLike, "B Ho Wo"] | TileIndex | None,
    *,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    bias: Float[ArrayLike, "O"] | None = None,
    activation: Activation | None = None,
    base: Float[ArrayLike, "B Ho Wo O"] | None = None,
    residual: Float[ArrayLike, "B Ho Wo O"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    record: Literal[True] | int,
    recorder: Recorder | None = None,
    in_channels: Bool[ArrayLike, "C"] | None = None,
    out_channels: Bool[ArrayLike, "O"] | None = None,
    implementation: Implementation = None,
) -> tuple[Float[Array, "B Ho Wo O"], Recorder]: ...


def masked_conv(
    x: Float[ArrayLike, "B H W C"],
    kernel: Float[ArrayLike, "kh kw C/g O"],
    mask: Bool[ArrayLike, "B Ho Wo"] | TileIndex | None,
    *,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    bias: Float[ArrayLike, "O"] | None = None,
    activation: Activation | None = None,
    base: Float[ArrayLike, "B Ho Wo O"] | None = None,
    residual: Float[ArrayLike, "B Ho Wo O"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    record: bool | int = False,
    recorder: Recorder | None = None,
    in_channels: Bool[ArrayLike, "C"] | None = None,
    out_channels: Bool[ArrayLike, "O"] | None = None,
    implementation: Implementation = None,
) -> Float[Array, "B Ho Wo O"] | tuple[Float[Array, "B Ho Wo O"], Recorder]:
    """Convolution at the active pixels of the output only.

    `where(mask, activation(conv(x, kernel) + bias + residual), base)`, with `base=None` meaning
    zeros. It is exact: a pixel outside the mask is `base`, also inside an active tile, and input
    pixels that no pixel of the mask needs are never read (they may hold NaN). Differentiable in x,
    kernel, bias, base and residual; the gradients touch active tiles only.
    Dense tiles inside a sparse image, with phantom reads and writes at their edges: DynaSpa 3.1.

    Args:
        x: float32, bfloat16 or float16 [B, H, W, C].
        kernel: same dtype as x, [kh, kw, C/groups, O].
        mask: which output pixels to compute: bool[B, Ho, Wo], or a `TileIndex` of it, built once
            for many ops. A mask of a batch of 1 holds for every image. `js.mask.propagate` makes
            it from the mask of x. With a mask of channels it may be None: every pixel.
        strides: one or two positive ints.
        padding: "SAME", "SAME_LOWER" or "VALID" in any case, an int, or ((top, bottom), (left,
            right)), of which either may be one int. A negative number leaves out pixels of x.
        dilation: of the kernel, one or two positive ints.
        groups: C and O must be multiples of it; depthwise is groups=C.
        bias: [O], added in float32.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), applied before rounding.
        base: what the result starts as, in the result's dtype; None means zeros. Its buffer becomes
            the result's where it may be donated, and then inactive pixels cost nothing.
        residual: added before the activation, in float32: the other side of a skip connection. Of
            the result's shape and dtype; read at active pixels only, never written.
        precision: as in jax.lax; "highest" multiplies float32 in float32, the default takes TF32 on
            a GPU.
        preferred_element_type: the result's dtype: x's dtype (default) or float32.
        record: with activation="relu6", return the result's exact recorder, too: one code for all
            channels of a pixel (True), or for each run of this many channels (an int).
        recorder: that of x, as the layer before returned it. Outputs that see only pixels whose
            channels are all zero or all at the bound are not multiplied, and such pixels are not
            read (they may hold NaN), unless the recorder says that they are `stored`. What a code
            stands for is a constant to derivatives.
        in_channels: bool[C], which channels of x count; the others are taken as zero, even where
            they hold NaN. Needs groups=1 and no `recorder`.
        out_channels: bool[O], which output channels are computed; the others are `base`. Needs
            groups=1 and no `recorder`. With either mask the active channels are gathered, and the
            convolution runs at the smallest of at most four widths that holds them: quarters of C
            or O, rounded up to a multiple of 16, or of 32 from 128 channels on (SparDA 3.1).
            `js.explain` names the width. Each call copies the active channels of x and of the
            residual, and the result. Under vmap over these masks the calls run one after another.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [B, Ho, Wo, O] of x's dtype or float32. When the index overflowed its capacity, the tiles it
        could not list stay `base` (`TileIndex.overflow` says so, `js.checked()` raises). With
        `record` a pair: that, and its `js.recorder.Recorder`.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    x, kernel, mask, bias, base, residual, recorder, in_channels, out_channels = unwrap(
        (x, kernel, mask, bias, base, residual, recorder, in_channels, out_channels)
    )
    options = (strides, padding, dilation, groups, bias, activation, base, residual, precision)
    more = (preferred_element_type, record, recorder, implementation, in_channels, out_channels)
    if is_symbolic(x):
        return _in_pieces(x, kernel, mask, options, more)
    return convolve("masked_conv", x, kernel, mask, *options, *more)


def _in_pieces(
    x: ArrayLike,
    kernel: ArrayLike,
    mask: ArrayLike | TileIndex | None,
    options: tuple[Any, ...],
    more: tuple[Any, ...],
) -> Any:
    """`masked_conv` of a batch that is a symbol."""
    if isinstance(mask, TileIndex):
        raise ValueError(
            f"x has shape [{', '.join(map(str, np.shape(x)))}] and mask is a TileIndex, whose size "
            "is static: where the batch is a symbol, pass the bool mask"
        )
    given = {"x": x, "mask": mask, "base": options[6], "residual": options[7], "recorder": more[2]}

    def piece(
        x: jax.Array,
        mask: jax.Array | None,
        base: jax.Array | None,
        residual: jax.Array | None,
        recorder: Recorder | None,
    ) -> Any:
        some = (*options[:6], base, residual, options[8], *more[:2], recorder, *more[3:])
        call: Any = convolve
        return call("masked_conv", x, kernel, mask, *some)

    why = "the kernels' tables of taps are made for one height, width and number of channels"
    return in_pieces(piece, given, 8, rest=why)


def convolve(
    called: str,
    x: ArrayLike,
    kernel: ArrayLike,
    mask: ArrayLike | TileIndex | None,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    groups: int = 1,
    bias: ArrayLike | None = None,
    activation: str | None = None,
    base: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    record: bool | int = False,
    recorder: Recorder | None = None,
    implementation: Implementation = None,
    in_channels: ArrayLike | None = None,
    out_channels: ArrayLike | None = None,
) -> Any:
    """`masked_conv` under the name of the op that the user `called`."""
    check_rank("x", x, 4, "NHWC [B, H, W, C]")
    check_rank("kernel", kernel, 4, "HWIO [kh, kw, C/groups, O]")
    x, kernel = as_array("x", x), as_array("kernel", kernel)
    check_float("x", x)
    check_same_dtype("kernel", kernel, "x", x)
    strides, dilation = pair(strides, "strides"), pair(dilation, "dilation")
    groups = check_positive("groups", groups)
    check_match(groups, x.shape, kernel.shape)
    window = kernel.shape[0], kernel.shape[1]
    pads = resolve_padding(padding, x.shape[1:3], window, strides, dilation)
    geometry = Geometry(strides, pads, dilation, (1, 1), groups)
    check_steps(geometry)
    shape = (x.shape[0], *geometry.out_size(x.shape[1:3], window))
    out_dtype = result_dtype(preferred_element_type, x.dtype)
    check_activation(activation)
    if bias is not None:
        check_rank("bias", bias, 1)
        bias = as_array("bias", bias)
        if bias.shape != (kernel.shape[3],):
            raise ValueError(
                f"bias has shape {bias.shape}; kernel's outputs need {kernel.shape[3:]}"
            )
        check_float("bias", bias)
        bias = bias.astype(jnp.float32)
    base = _like_result("base", base, (*shape, kernel.shape[3]), out_dtype)
    residual = _like_result("residual", residual, (*shape, kernel.shape[3]), out_dtype)
    channels = check_channels(in_channels, out_channels, groups, kernel.shape)
    check_offsets("x", x.shape)
    check_offsets("the result", (*shape, kernel.shape[3]))
    plan(called, implementation, NAMES)
    params = ConvParams(
        geometry,
        activation,
        canonical_precision(precision),
        out_dtype.name,
        implementation_key(implementation),
        called,
        activation is None and all(v is None for v in (bias, base, residual)),
    )
    if mask is None and channels.masked():
        mask = jnp.ones(shape, bool)
    elif mask is None and called == OP:
        raise TypeError(
            "mask must be an array, not NoneType: it may be None with in_channels= or "
            "out_channels= only, and then stands for every pixel"
        )
    mask = fit_mask("mask", mask, shape)
    if isinstance(mask, TileIndex):
        index, cover = mask, None
    else:
        index, cover = index_of_mask(params, x, kernel, mask, fills=base is None), mask
    check_overflow(called, index)
    if recorder is None:
        explain(params, x, kernel, index, channels, fills=base is None)
    else:
        check_recorder("x", recorder, x.shape)
        if channels.masked():
            raise ValueError(
                "recorder: a code stands for all channels of a pixel, so it takes no in_channels "
                "and no out_channels: pass recorder.fill(x) as x, without the recorder"
            )
    segment = check_record(record, activation, kernel.shape[3])
    cover = None if recorder is None else cover
    out = _run(params, *lift(x, kernel, bias, base, residual, index, recorder, cover, channels))
    return (out, record_channels(out, segment, params.implementation)) if segment else out


@functools.partial(jax.jit, static_argnums=0)
def _run(
    params: ConvParams,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    residual: jax.Array | None,
    index: TileIndex,
    recorder: Recorder | None,
    cover: jax.Array | None,
    channels: Channels,
) -> Any:
    if recorder is not None:
        cover = index.cover() if cover is None else cover
        return conv_known(params, x, kernel, bias, base, cover, recorder, residual)
    return conv(params, Operands(x, kernel, index, bias, base, residual, channels=channels))


def _like_result(
    name: str, given: ArrayLike | None, shape: tuple[int, ...], dtype: np.dtype
) -> Any:
    """`given` as an array of the result's shape [B, Ho, Wo, O] and dtype; None stays.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if given is None:
        return None
    check_rank(name, given, 4)
    array = as_array(name, given)
    check_like_result(name, array, shape, dtype)
    return array
