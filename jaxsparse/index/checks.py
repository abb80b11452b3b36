"""Checks of an index's arguments: each names the argument, what came, and what is needed."""

import math
from typing import Any

import numpy as np

from jaxsparse.core.checks import check_array
from jaxsparse.core.integers import check_static, static_int

ALIGNMENTS = ("grid", "component")
#: The sides of a tile that kernels take in an attribute.
SIDES = (1, 2, 4, 8, 16, 32)

# The kernels' coordinates are 32-bit; offsets into lists of masks are 64-bit.
_MAX_AXIS = 2**30
_MAX_IDS = 2**31 - 1


def check_spatial_mask(mask: Any) -> tuple[int, int, int]:
    """The shape of a mask bool[B, H, W]."""
    check_array("mask", mask)
    if mask.dtype != np.bool_:
        raise TypeError(f"mask has dtype {mask.dtype}; it takes bool: `mask != 0` makes one")
    if len(mask.shape) != 3:
        how = ": mask[None] is a batch of one" if len(mask.shape) == 2 else ""
        raise ValueError(f"mask has shape {tuple(mask.shape)}; it needs (B, H, W){how}")
    images, height, width = mask.shape
    return images, height, width


def check_align(align: Any) -> None:
    """`align` is "grid" or "component"."""
    if align not in ALIGNMENTS:
        raise ValueError(f"align={align!r}; it takes 'grid' or 'component'")


def check_tile(tile: Any) -> tuple[int, int]:
    """`tile` as a pair of positive ints."""
    try:
        th, tw = (static_int(n) for n in tile)
    except (TypeError, ValueError):
        check_static("tile", tile)
        raise TypeError(
            f"tile={tile!r}; it takes a pair (height, width) of positive ints"
        ) from None
    if th < 1 or tw < 1:
        raise ValueError(f"tile={tile!r}; it takes a pair (height, width) of positive ints")
    return th, tw


def tile_code(tile: tuple[int, int]) -> int:
    """A tile as the handlers take it: 8 * log2(height) + log2(width), of sides in `SIDES`."""
    return 8 * SIDES.index(tile[0]) + SIDES.index(tile[1])


def check_single(name: str, index: Any) -> None:
    """`index` is one TileIndex, not a stack of them from `vmap`."""
    axes = tuple(getattr(index.count, "shape", ()))
    if axes:
        raise ValueError(f"{name} is a stack {axes} of TileIndex: take it apart with jax.vmap")


def check_capacity(capacity: Any) -> int:
    """`capacity` as an int that int32 ids can count."""
    try:
        capacity = static_int(capacity)
    except TypeError:
        check_static("capacity", capacity)
        raise TypeError(f"capacity={capacity!r}; it takes an int or None") from None
    if not 0 <= capacity <= _MAX_IDS:
        raise ValueError(f"capacity={capacity}; it takes 0 to {_MAX_IDS} tiles, or None for all")
    return capacity


def check_size(shape: tuple[int, int, int], tile: tuple[int, int], align: str) -> None:
    """Ids of tiles (of pixels, per component) are int32, and so are the kernels' coordinates."""
    images, height, width = shape
    th, tw = tile if align == "grid" else (1, 1)
    ids = images * -(-height // th) * -(-width // tw)
    if ids > _MAX_IDS:
        what = f"tiles of {tile}" if align == "grid" else "pixels, align='component',"
        raise ValueError(f"mask {list(shape)} has {ids} {what}; int32 ids take {_MAX_IDS}")
    if max(shape) > _MAX_AXIS or math.prod((images, height, -(-width // 32))) > _MAX_AXIS:
        raise ValueError(f"mask {list(shape)} is too large: axes and words are limited to 2^30")


def max_tiles(shape: tuple[int, int, int], tile: tuple[int, int], align: str) -> int:
    """The most tiles that a mask of this shape can have.

    Aligned to the grid: all of them. Per component: a pixel of the mask lies in exactly one tile of
    its component, and a listed tile holds at least one, so there are never more tiles than pixels
    (as many with 1x1 tiles).
    """
    if align == "component":
        return math.prod(shape)
    return shape[0] * -(-shape[1] // tile[0]) * -(-shape[2] // tile[1])
