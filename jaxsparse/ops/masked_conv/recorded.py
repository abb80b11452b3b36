"""Convolutions between saturated layers: the recorder of a result, and a convolution that never
reads what a recorder has decided.

A pixel is decided when all its channels are zero, or all at the bound. A zero pixel adds nothing. A
pixel at the bound adds the bound times the sum of the kernel over the channels, which is a
convolution of one channel. An output that sees decided pixels only has one of few results, which a
table holds; it is never multiplied, and what lies under a code is never read.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import entries, fold, unfold
from jaxsparse.ffi import Implementation, Rule, dispatch, ffi_call, partitioned
from jaxsparse.ops.masked_conv.core import conv
from jaxsparse.ops.masked_conv.fill import fill_rows
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.run import explain, index_of_mask
from jaxsparse.ops.masked_conv.windows import (
    MOST_TAPS,
    Known,
    decided_pixels,
    finish,
    known_windows,
    seen_from,
    tap_sums,
)
from jaxsparse.recorder import MIXED, Recorder, probe
from jaxsparse.recorder.types import segment_count

RELU6 = 6.0


def check_record(record: object, activation: str | None, channels: int) -> int:
    """Channels of a segment that `record` asks for; 0: it asks for none.

    Raises:
        TypeError, ValueError: for a value that `masked_conv` does not take, naming it.
    """
    if isinstance(record, np.bool_):
        record = bool(record)
    if record is False or record is None:
        return 0
    if activation != "relu6":
        raise ValueError(f"record={record!r} takes activation='relu6', not {activation!r}")
    if record is True:
        return max(channels, 1)
    if not isinstance(record, (int, np.integer)) or record < 1:
        raise ValueError(f"record={record!r}; it takes a bool, or the channels of a segment")
    return min(int(record), max(channels, 1))


def record_channels(out: jax.Array, segment: int, implementation: Implementation) -> Recorder:
    """The exact recorder of out [B, H, W, C] under the bound 6: uint8[B, H, W, ceil(C/segment)]."""
    rows = jax.lax.stop_gradient(out).reshape(math.prod(out.shape[:-1]), out.shape[-1])
    flat: Any = _rows(segment, implementation)(rows)
    codes = flat.reshape(*out.shape[:-1], flat.shape[-1])
    return Recorder(codes, segment, RELU6, stored=True)


def _rows(segment: int, implementation: Implementation) -> Any:
    """A function of values [rows, n] to codes, with its vmap rule."""

    @custom_vmap
    def run(values: jax.Array):
        if 0 in values.shape:
            return probe(values, segment, RELU6).codes
        alone = dispatch(
            "record_segments",
            implementation,
            cuda=functools.partial(_native, segment),
            cpu=functools.partial(_native, segment),
            reference=lambda values: probe(values, segment, RELU6).codes,
        )
        rule = Rule("masked_conv", ("r .",), ("r .",), ("r",), ("the result",))
        return partitioned(rule, alone, lambda _, values: alone(values))(values)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], values: jax.Array):
        codes = run(fold(values, in_batched[0], axis_size))
        return unfold(codes, axis_size, entries(values, in_batched[0])), True

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
    values under a set code are not read, unless they are stored."""
    if 0 in (*x.shape, *kernel.shape, *cover.shape):
        index = index_of_mask(p, x, kernel, cover, fills=base is None)
        explain(p, x, kernel, index, fills=base is None)
        return conv(p, Operands(recorder.fill(x), kernel, index, bias, base, residual))
    window: Any = kernel.shape[:2]
    taps = kernel.reshape(-1, *kernel.shape[2:])
    if residual is None and len(taps) <= MOST_TAPS:
        known = Known(p, window, recorder.upper)
        far, near = known_windows(known, recorder.codes, cover, taps, bias, base)
    else:
        zero, full = decided_pixels(recorder.codes)
        near = cover & seen_from(p, ~(zero | full), window)
        sums = tap_sums(taps, recorder.upper)
        far = _far(p, full, sums, window, bias, base, residual, cover, near)
    index = index_of_mask(p, x, kernel, near, fills=False)
    explain(p, x, kernel, index, fills=False)
    filled = _readable(p, x, near, window, recorder)
    return conv(p, Operands(filled, kernel, index, bias, far, residual))


def _readable(
    p: ConvParams, x: jax.Array, near: jax.Array, window: tuple[int, int], recorder: Recorder
) -> jax.Array:
    """x with what its codes stand for, at least where the outputs `near` read it; to derivatives
    that is a constant."""
    if recorder.stored:
        return jnp.where(recorder.spread(x.shape[-1]) != MIXED, jax.lax.stop_gradient(x), x)
    if recorder.codes.shape[-1] != 1:
        return recorder.fill(x)
    zero, full = decided_pixels(recorder.codes)
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


def _far(
    p: ConvParams,
    full: jax.Array,
    sums: jax.Array,
    window: tuple[int, int],
    bias: jax.Array | None,
    base: jax.Array | None,
    residual: jax.Array | None,
    cover: jax.Array,
    near: jax.Array,
) -> jax.Array:
    """What the outputs that are covered and not `near` are, as a base of the others, for windows
    that have no table: a convolution of one channel."""
    geo = p.geometry
    found = jax.lax.conv_general_dilated(
        full[..., None].astype(jnp.float32),
        sums.reshape(*window, 1, sums.shape[1]),
        geo.strides,
        geo.padding,
        rhs_dilation=geo.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision="highest",
    )
    if residual is not None:  # not read elsewhere
        added = jnp.where((cover & ~near)[..., None], residual, jnp.zeros_like(residual))
        found = found + added.astype(jnp.float32)
    far = finish(p, found, bias)
    return jnp.where(cover[..., None], far, jnp.zeros_like(far) if base is None else base)


def _read_by(p: ConvParams, outputs: jax.Array, window: tuple[int, int]) -> jax.Array:
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
