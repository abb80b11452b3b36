"""Convolutions between saturated layers: the recorder of a result, and a convolution that never
reads what a recorder has decided.

A pixel is decided when all its channels are zero, or all at the bound. A zero pixel adds nothing. A
pixel at the bound adds the bound times the sum of the kernel over the channels, which is a
convolution of one channel. An output that sees decided pixels only has one of few results, which a
table holds; it is never multiplied, and what lies under a code is never read.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ops.batching import fold, unfold
from jaxsparse.ops.bounded_fill import fill_rows
from jaxsparse.ops.masked_conv_core import ConvParams, conv
from jaxsparse.ops.masked_conv_run import index_of_mask
from jaxsparse.recorder import UPPER, ZERO, Recorder, probe
from jaxsparse.recorder.types import segment_count
from jaxsparse.reference.activations import ACTIVATIONS

RELU6 = 6.0
#: Windows of more pixels have no table of all that they may see.
MOST_TAPS = 9


def check_record(record: Any, activation: str | None, channels: int) -> int:
    """Channels of a segment that `record` asks for; 0: it asks for none.

    Raises:
        TypeError, ValueError: for a value that `masked_conv` does not take, naming it.
    """
    if record is False or record is None:
        return 0
    if activation != "relu6":
        raise ValueError(f"record={record!r} takes activation='relu6', not {activation!r}")
    if record is True:
        return max(channels, 1)
    if not isinstance(record, (int, np.integer)) or record < 1:
        raise ValueError(f"record={record!r}; it takes a bool, or the channels of a segment")
    return min(int(record), max(channels, 1))


def check_recorder(recorder: Any, shape: tuple[int, ...]) -> None:
    """Whether `recorder` is one of an input of `shape` [B, H, W, C].

    Raises:
        TypeError, ValueError: naming what came and what is needed.
    """
    if not isinstance(recorder, Recorder):
        raise TypeError(f"recorder must be a js.recorder.Recorder, not {type(recorder).__name__}")
    need = (*shape[:3], segment_count(shape[3], recorder.segment))
    if recorder.codes.shape != need:
        raise ValueError(f"recorder has codes {recorder.codes.shape}; x {shape} needs {need}")


def record_channels(out: jax.Array, segment: int, implementation: Implementation) -> Recorder:
    """The exact recorder of out [B, H, W, C] under the bound 6: uint8[B, H, W, ceil(C/segment)]."""
    codes: Any = _codes(segment, implementation, out)
    return Recorder(codes, segment, RELU6)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _codes(segment: int, implementation: Implementation, out: jax.Array) -> jax.Array:
    rows = math.prod(out.shape[:-1])
    flat = _rows(segment, implementation)(out.reshape(rows, out.shape[-1]))
    return flat.reshape(*out.shape[:-1], flat.shape[-1])


_codes.defvjp(
    lambda segment, implementation, out: (_codes(segment, implementation, out), None),
    lambda segment, implementation, saved, g: (None,),
)


def _rows(segment: int, implementation: Implementation) -> Any:
    """A function of values [rows, n] to codes, with its vmap rule."""

    @custom_vmap
    def run(values):
        if 0 in values.shape:
            return probe(values, segment, RELU6).codes
        return dispatch(
            "record_segments",
            implementation,
            cuda=functools.partial(_native, segment),
            cpu=functools.partial(_native, segment),
            reference=lambda values: probe(values, segment, RELU6).codes,
        )(values)

    @run.def_vmap
    def rule(axis_size, in_batched, values):
        return unfold(run(fold(values, in_batched[0], axis_size)), axis_size), True

    return run


def _native(segment: int, values: jax.Array) -> jax.Array:
    kind = np.uint32 if values.dtype.itemsize == 4 else np.uint16
    bits = int(np.asarray(RELU6, values.dtype).view(kind))
    codes = ((values.shape[0], segment_count(values.shape[1], segment)), np.uint8)
    return ffi_call("jaxsparse_record_segments", [codes], values, segment=segment, upper_bits=bits)[
        0
    ]


def conv_known(
    p: ConvParams,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    cover: jax.Array,
    recorder: Recorder,
    residual: jax.Array | None = None,
) -> jax.Array:
    """`conv` at the pixels of cover, bool[B, Ho, Wo], of an input whose recorder is known; its
    values under a set code are not read."""
    if 0 in (*x.shape, *kernel.shape, *cover.shape):
        index = index_of_mask(p, x, kernel, cover, fills=base is None)
        return conv(p, recorder.fill(x), kernel, bias, base, index, None, residual)
    zero = (recorder.codes == ZERO).all(-1)
    full = (recorder.codes == UPPER).all(-1) & ~zero
    near = cover & _seen_from(p, ~(zero | full), kernel.shape[:2])
    added = residual
    if residual is not None:  # not read elsewhere
        added = jnp.where((cover & ~near)[..., None], residual, jnp.zeros_like(residual))
    far = _known(p, full, recorder.upper, kernel, bias, base, added, cover, near)
    filled = _filled(p, x, zero, full, near, kernel.shape[:2], recorder)
    index = index_of_mask(p, x, kernel, near, fills=False)
    return conv(p, filled, kernel, bias, far, index, None, residual)


def _filled(
    p: ConvParams,
    x: jax.Array,
    zero: jax.Array,
    full: jax.Array,
    near: jax.Array,
    window: Any,
    recorder: Recorder,
) -> jax.Array:
    """x with what its codes stand for, at least where the outputs `near` read it."""
    if recorder.codes.shape[-1] != 1:
        return recorder.fill(x)
    select = jnp.where(full, 1, jnp.where(zero, 0, -1))
    if p.geometry.strides == (1, 1):
        read = _read_by(p, near, window)
        select = jnp.where(read | (select < 0), select, -2 - select)
    codes = jnp.asarray([[0.0], [recorder.upper]], x.dtype)
    table = jnp.broadcast_to(codes, (2, x.shape[-1]))
    flat = fill_rows(
        x.reshape(-1, x.shape[-1]),
        table,
        select.reshape(-1).astype(jnp.int32),
        p.implementation,
    )
    return flat.reshape(x.shape)


def _known(
    p: ConvParams,
    full: jax.Array,
    upper: float,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    residual: jax.Array | None,
    cover: jax.Array,
    near: jax.Array,
) -> jax.Array:
    """What the outputs that are covered and not `near` are, as a base of the others."""
    window, outputs = kernel.shape[:2], kernel.shape[3]
    taps = window[0] * window[1]
    whole = upper * kernel.astype(jnp.float32).sum(2).reshape(taps, outputs)

    def finish(sums: jax.Array) -> jax.Array:
        for added in (bias, residual):
            if added is not None:
                sums = sums + added.astype(jnp.float32)
        if p.activation is not None:
            sums = ACTIVATIONS[p.activation](sums)
        return sums.astype(p.out_dtype)

    if taps <= MOST_TAPS and residual is None:
        bits = np.arange(1 << taps)[:, None] >> np.arange(taps) & 1
        sums = jnp.dot(jnp.asarray(bits, jnp.float32), whole, precision="highest")
        table = finish(sums)
        select = jnp.where(near, -1, _windows(p, full, window))
        if base is None:  # one entry more, of zeros
            table = jnp.concatenate([table, jnp.zeros((1, outputs), table.dtype)])
            select = jnp.where(cover, select, len(bits))
        else:
            select = jnp.where(cover, select, -1)
        flat = None if base is None else base.reshape(-1, outputs)
        rows = fill_rows(flat, table, select.reshape(-1).astype(jnp.int32), p.implementation)
        return rows.reshape(*near.shape, outputs)
    geo = p.geometry
    sums = jax.lax.conv_general_dilated(
        full[..., None].astype(jnp.float32),
        whole.reshape(*window, 1, outputs),
        geo.strides,
        geo.padding,
        rhs_dilation=geo.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision="highest",
    )
    far = finish(sums)
    return jnp.where(cover[..., None], far, jnp.zeros_like(far) if base is None else base)


def _windows(p: ConvParams, pixels: jax.Array, window: Any) -> jax.Array:
    """int32[B, Ho, Wo]: bit t says whether the input's pixel at tap t is one of `pixels`."""
    geo = p.geometry
    pads = [(0, 0, 0), *((low, high, 0) for low, high in geo.padding)]
    padded = jax.lax.pad(pixels.astype(jnp.int32), 0, pads)
    rows, columns = geo.out_size(pixels.shape[1:], window)
    found = jnp.zeros((pixels.shape[0], rows, columns), jnp.int32)
    for t, (ky, kx) in enumerate(np.ndindex(*window)):
        top, left = ky * geo.dilation[0], kx * geo.dilation[1]
        bottom = top + (rows - 1) * geo.strides[0] + 1
        right = left + (columns - 1) * geo.strides[1] + 1
        part = padded[:, top : bottom : geo.strides[0], left : right : geo.strides[1]]
        found = found | part << t
    return found


def _read_by(p: ConvParams, outputs: jax.Array, window: Any) -> jax.Array:
    """bool[B, H, W]: the pixels that some of `outputs` has a tap on, where strides are 1."""
    geo = p.geometry
    reach = [(k - 1) * d for k, d in zip(window, geo.dilation, strict=True)]
    pads = [
        (0, 0, 0),
        *((r - low, r - high, 0) for r, (low, high) in zip(reach, geo.padding, strict=True)),
    ]
    return jax.lax.reduce_window(
        jax.lax.pad(outputs, False, pads),
        False,
        jax.lax.bitwise_or,
        (1, *window),
        (1, 1, 1),
        "VALID",
        window_dilation=(1, *geo.dilation),
    )


def _seen_from(p: ConvParams, pixels: jax.Array, window: Any) -> jax.Array:
    """bool[B, Ho, Wo]: the outputs with a tap on one of the input's `pixels`."""
    geo = p.geometry
    pads = [(0, 0, 0), *((low, high, 0) for low, high in geo.padding)]
    return jax.lax.reduce_window(
        jax.lax.pad(pixels, False, pads),
        False,
        jax.lax.bitwise_or,
        (1, *window),
        (1, *geo.strides),
        "VALID",
        window_dilation=(1, *geo.dilation),
    )
