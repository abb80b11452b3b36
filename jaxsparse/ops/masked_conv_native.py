"""`masked_conv` on its native handlers: operands, attributes, workspaces, and which variant takes
which problem.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.platform import is_hopper
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.select.variants import Variant, table

DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
#: Multiprocessors of a device that nothing is known of.
USUAL_PROCESSORS = 100
#: Pixels that the tiles of a list may hold together, on a GPU.
MOST_PIXELS = 2**30
ACTIVATIONS = {None: 0, "relu": 1, "relu6": 2, "silu": 3, "gelu": 4}


def attributes(p: Any, index: TileIndex) -> dict[str, int]:
    """The attributes that forward and dkernel share."""
    geo = p.geometry
    return {
        "stride_h": geo.strides[0],
        "stride_w": geo.strides[1],
        "pad_top": geo.padding[0][0],
        "pad_left": geo.padding[1][0],
        "dilation_h": geo.dilation[0],
        "dilation_w": geo.dilation[1],
        "groups": geo.groups,
        "tile_h": sides_of(index)[0],
        "tile_w": sides_of(index)[1],
        "precision": int(p.precision == "highest"),
    }


def sides_of(index: TileIndex) -> tuple[int, int]:
    """The tile as the handlers take it: where it is larger than the image, as large as that and a
    multiple of 8, which lists the same.
    """
    (th, tw), (_, height, width) = index.tile, index.shape
    return min(th, max(8, -(-height // 8) * 8)), min(tw, max(8, -(-width // 8) * 8))


def check_pixels(index: TileIndex) -> None:
    """Refuse a list that the CUDA handlers do not take.

    Raises:
        ValueError: naming it.
    """
    pixels = index.capacity * math.prod(sides_of(index))
    if pixels > MOST_PIXELS:
        raise ValueError(
            f"mask: a list of {index.capacity} tiles of {index.tile} holds {pixels} pixels; on a "
            f"GPU masked_conv takes {MOST_PIXELS}: give js.tile_index a smaller capacity"
        )


def forward(
    p: Any, platform: str, variant: str, x, kernel, bias, base, index, x_words, residual=None
):
    """One forward call of `variant`; `base` becomes the result."""
    out = (*index.shape, kernel.shape[3])
    row = table("masked_conv", platform)[variant]
    return ffi_call(
        "jaxsparse_masked_conv",
        [(out, p.out_dtype), ((workspace(p, platform, row, x, kernel, index),), np.uint8)],
        x,
        kernel,
        index.ids,
        index.count,
        index.words,
        jnp.zeros(0, jnp.uint32) if x_words is None else x_words,
        jnp.zeros(0, jnp.float32) if bias is None else bias,
        jnp.zeros(0, p.out_dtype) if base is None else base,
        jnp.zeros(0, p.out_dtype) if residual is None else residual,
        input_output_aliases=None if base is None else {7: 0},
        lhs_dilation_h=p.geometry.lhs_dilation[0],
        lhs_dilation_w=p.geometry.lhs_dilation[1],
        activation=ACTIVATIONS[p.activation],
        variant=row.number,
        **attributes(p, index),  # pyright: ignore[reportArgumentType]
    )[0]


def variants(
    p: Any, platform: str, x: Any, kernel: Any, index: TileIndex, x_words: Any = None
) -> list[str]:
    """The variants whose handler takes this problem, in order of preference where nothing was
    measured: mma.sync, if the input has enough channels for it, then as the tables list them.
    """
    rows = table("masked_conv", platform)
    takes = [n for n in rows if reason_against(p, platform, n, x, kernel, index, x_words) is None]
    tiled = [rows[n] for n in takes if rows[n].fields.get("mma")]
    if not tiled or kernel.shape[2] < mma_channels(x.dtype.itemsize):
        return takes
    first = fitting(tiled, math.prod(index.shape), kernel.shape[3]).name
    return [first, *(n for n in takes if n != first)]


def mma_channels(itemsize: int) -> int:
    """Input channels from which mma.sync is preferred to `direct`: of 16 bits where it is faster,
    since the narrow kernel takes four at most; fewer than 16 of float32 are cheap, and stay exact.
    """
    return 16 if itemsize == 4 else 5


def fitting(rows: Sequence[Variant], pixels: int, outputs: int) -> Variant:
    """Of rows of mma.sync the one with the largest tile that a tenth of the pixels fill all
    multiprocessors of a usual device with, if any, and that is not half empty.
    """
    by_size = sorted(rows, key=lambda r: (-r.fields["tile_m"] * r.fields["tile_n"], r.number))
    for row in by_size[:-1]:
        m, n = row.fields["tile_m"], row.fields["tile_n"]
        tiles = pixels // (10 * m) * -(-outputs // n)
        if tiles >= USUAL_PROCESSORS and (n <= 64 or 2 * outputs > n):
            return row
    return by_size[-1]


def reason_against(
    p: Any,
    platform: str,
    variant: str,
    x: Any,
    kernel: Any,
    index: TileIndex,
    x_words: Any = None,
) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if platform == "cpu":
        return None
    row = table("masked_conv", platform)[variant]
    if variant == "direct":
        return None
    kh, kw, _, outputs = kernel.shape
    vector = 16 // x.dtype.itemsize
    if p.geometry.groups != 1:
        return f"groups={p.geometry.groups}: it takes 1"
    if variant == "ffma":
        vector = 4
        if x.dtype != np.float32 or p.precision != "highest":
            return "it is for float32 at precision 'highest'"
    elif p.precision == "highest" and x.dtype == np.float32:
        return "float32 products are asked for, not TF32"
    elif kh * kw > 64 or max(kh, kw) > 32:
        return f"a window of {kh}x{kw}: it takes 64 taps, 32 a side"
    elif row.fields.get("mma"):
        return "the input has no channels" if x.shape[3] == 0 else None
    elif not is_hopper():
        return "the device is not of compute capability 9.0"
    elif -(-kh * kw * x.shape[3] // (8 * vector)) < row.fields["split_k"]:
        return f"K = {kh * kw * x.shape[3]} has fewer steps than split_k={row.fields['split_k']}"
    if x.shape[3] == 0 or x.shape[3] % vector or outputs % vector:
        return f"{x.shape[3]} and {outputs} channels: both must be multiples of {vector}"
    return _reason_against_boxes(p, x, index, x_words) if row.fields.get("box") else None


def _reason_against_boxes(p: Any, x: Any, index: TileIndex, x_words: Any) -> str | None:
    """Why 8 x 8 blocks of pixels cannot be loaded as boxes, or None."""
    channels = 128 // x.dtype.itemsize
    narrow = 32 if x.dtype.itemsize == 2 else None  # channels of a pixel of 64 bytes
    if x_words is not None:
        return "boxes: the input is masked"
    if tuple(p.geometry.lhs_dilation) != (1, 1):
        return f"boxes: lhs_dilation={p.geometry.lhs_dilation}: they take 1"
    if any(side % 8 for side in sides_of(index)):
        return f"boxes: tile={index.tile}: its sides must be multiples of 8"
    if x.shape[3] % channels and x.shape[3] != narrow:
        few = "" if narrow is None else f"{narrow} and "
        return f"boxes: {x.shape[3]} channels: they take {few}multiples of {channels}"
    if max(p.geometry.strides) > 8:
        return f"boxes: strides={p.geometry.strides}: they take up to 8"
    if 0 in x.shape[1:3]:
        return "boxes: the input is empty"
    return None


def sizes(p: Any, x_shape: Any, kernel_shape: Any, out_hw: Any) -> tuple[int, ...]:
    """The geometry as the native modules take it, in the order of their ConvGeometry."""
    geo, (kh, kw, _, outputs) = p.geometry, kernel_shape
    return (
        *(*x_shape, *out_hw, outputs, kh, kw, *geo.strides),
        *(geo.padding[0][0], geo.padding[1][0], *geo.dilation, *geo.lhs_dilation, geo.groups),
    )


def workspace(p: Any, platform: str, row: Variant, x: Any, kernel: Any, index: TileIndex) -> int:
    """Bytes of workspace of one forward call, asked of the kernels themselves."""
    geometry = sizes(p, x.shape, kernel.shape, index.shape[1:])
    return native(platform).masked_conv_workspace(
        geometry, DTYPES[x.dtype.name], *([] if platform == "cpu" else [row.number])
    )
