"""`masked_conv` on its native handlers: operands, attributes and workspaces."""

import math
from typing import Any

import jax
import numpy as np

from jaxsparse.core.activations import CODES
from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.visited import slots_of
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.masked_conv.problem import OP, tile_sides
from jaxsparse.select.variants import Variant, table

#: Pixels that the tiles of a list may hold together, on a GPU; and taps of a window.
MOST_PIXELS, MOST_TAPS = 2**30, 2**20
#: There, where coordinates are 32-bit (contracts/masked_conv.toml): the size of an axis, and how
#: far a window, its steps and its pads reach along one.
MOST_AXIS, MOST_REACH = 2**30, 2**29


def attributes(p: ConvParams, index: TileIndex) -> dict[str, int]:
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
    """The tile as the handlers take it."""
    return tile_sides(index.tile, index.shape)


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


def check_window(
    p: ConvParams,
    x_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    out_hw: tuple[int, ...],
) -> None:
    """Refuse a window that the CUDA handlers do not take.

    Raises:
        ValueError: naming the argument.
    """
    geo, window = p.geometry, kernel_shape[:2]
    if math.prod(window) > MOST_TAPS:
        raise ValueError(
            f"kernel has a window of {window[0]}x{window[1]}; on a GPU {OP} takes {MOST_TAPS} taps"
        )
    for name, shape in (("x", x_shape), ("kernel", kernel_shape), ("the result", out_hw)):
        if max(shape, default=0) > MOST_AXIS:
            raise ValueError(
                f"{name} has shape {tuple(shape)}; on a GPU {OP} takes {MOST_AXIS} along an axis"
            )
    for side in (0, 1):
        reaches = {
            f"kernel has a window of {window[0]}x{window[1]}, dilation={geo.dilation}": (
                window[side] * geo.dilation[side]
            ),
            f"padding={geo.padding}": abs(geo.padding[side][0]),
            f"strides={geo.strides} over {tuple(out_hw)} pixels": out_hw[side] * geo.strides[side],
        }
        for said, reach in reaches.items():
            if reach > MOST_REACH:
                raise ValueError(
                    f"{said}: {reach} pixels along axis {1 + side}; on a GPU {OP} takes "
                    f"{MOST_REACH}"
                )


def forward(p: ConvParams, platform: str, variant: str, *given: Any):
    """One forward call of `variant` with these `Operands`; the base becomes the result."""
    operands = Operands(*given)
    x, kernel, index, base = operands.x, operands.kernel, operands.tiles, operands.base
    out = (*index.shape, kernel.shape[3])
    row = table("masked_conv", platform)[variant]
    return ffi_call(
        "jaxsparse_masked_conv",
        [(out, p.out_dtype), ((workspace(p, platform, row, x, kernel, index),), np.uint8)],
        *arrays(p, platform, operands),
        input_output_aliases=None if base is None else {7: 0},
        lhs_dilation_h=p.geometry.lhs_dilation[0],
        lhs_dilation_w=p.geometry.lhs_dilation[1],
        activation=CODES[p.activation],
        variant=row.number,
        **attributes(p, index),  # pyright: ignore[reportArgumentType]
    )[0]


def arrays(p: ConvParams, platform: str, operands: Operands) -> tuple[jax.Array, ...]:
    """The handlers' first operands; the base is the eighth."""
    x, kernel, index, bias, base, residual, x_words, _ = operands
    listed = index.ids, slots_of(index, platform), index.words
    added = absent(bias, np.float32), absent(base, p.out_dtype), absent(residual, p.out_dtype)
    return x, kernel, *listed, absent(x_words, np.uint32), *added


def sizes(
    p: ConvParams, x_shape: tuple[int, ...], kernel_shape: tuple[int, ...], out_hw: tuple[int, ...]
) -> tuple[int, ...]:
    """The geometry as the native modules take it, in the order of their ConvGeometry."""
    geo, (kh, kw, _, outputs) = p.geometry, kernel_shape
    return (
        *(*x_shape, *out_hw, outputs, kh, kw, *geo.strides),
        *(geo.padding[0][0], geo.padding[1][0], *geo.dilation, *geo.lhs_dilation, geo.groups),
    )


def workspace(
    p: ConvParams, platform: str, row: Variant, x: Shaped, kernel: Shaped, index: TileIndex
) -> int:
    """Bytes of workspace of one forward call, asked of the kernels themselves."""
    geometry = sizes(p, x.shape, kernel.shape, index.shape[1:])
    return native(platform).masked_conv_workspace(
        geometry, DTYPES[x.dtype.name], *([] if platform == "cpu" else [row.number])
    )
