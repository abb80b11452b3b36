"""Convolutions between saturated layers: the recorder of a result, and a convolution that never
reads what a recorder has decided.

A pixel is decided when all its channels are zero, or all at the bound. A zero pixel adds nothing. A
pixel at the bound adds the bound times the sum of the kernel over the channels, which is a
convolution of one channel. So decided pixels are left out of the product: they are not loaded, and
outputs that see no other pixel are not multiplied at all.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.bits import pack_mask
from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.index import TileIndex
from jaxsparse.index.types import index_of_words
from jaxsparse.ops.batching import fold, unfold
from jaxsparse.ops.masked_conv_core import ConvParams, conv
from jaxsparse.recorder import UPPER, ZERO, Recorder, probe
from jaxsparse.recorder.types import segment_count
from jaxsparse.reference.activations import ACTIVATIONS

RELU6 = 6.0


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
    index: TileIndex,
    recorder: Recorder,
    residual: jax.Array | None = None,
) -> jax.Array:
    """`conv` of an input whose recorder is known; its values under a decided pixel are not read."""
    zero = (recorder.codes == ZERO).all(-1)
    full = (recorder.codes == UPPER).all(-1) & ~zero
    undecided = ~(zero | full)
    cover = index.cover()
    words = pack_mask(cover & _seen_from(p, undecided, kernel.shape[:2]))
    near = index_of_words(words, index.shape[2], index.tile, ordered=p.deterministic)
    linear = dataclasses.replace(p, activation=None, out_dtype="float32")
    sums: Any = conv(linear, x, kernel, None, None, near, pack_mask(undecided))
    single = dataclasses.replace(
        linear, geometry=dataclasses.replace(p.geometry, groups=1), precision="highest"
    )
    bound = jnp.where(full, jnp.float32(recorder.upper), 0.0)[..., None]
    whole = kernel.astype(jnp.float32).sum(2, keepdims=True)
    sums = sums + conv(single, bound, whole, None, None, index, None)
    if bias is not None:
        sums = sums + bias
    if residual is not None:
        added = jnp.where(cover[..., None], residual, jnp.zeros_like(residual))
        sums = sums + added.astype(jnp.float32)
    if p.activation is not None:
        sums = ACTIVATIONS[p.activation](sums)
    y = sums.astype(p.out_dtype)
    return jnp.where(cover[..., None], y, jnp.zeros_like(y) if base is None else base)


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
