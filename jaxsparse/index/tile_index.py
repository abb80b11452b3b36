"""`tile_index`: from a mask to the list of its active tiles."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jaxsparse.bits import pack_mask
from jaxsparse.core.types import Align
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.index.checks import (
    check_align,
    check_size,
    check_spatial_mask,
    check_tile,
)
from jaxsparse.index.compact import ListSpec
from jaxsparse.index.mask_list import list_mask
from jaxsparse.index.types import TileIndex, in_order, index_of_words, room_for
from jaxsparse.select import default_tile
from jaxsparse.select.explain import record


@takes_variables
def tile_index(
    mask: Bool[ArrayLike, "B H W"],
    tile: tuple[int, int] | None = None,
    *,
    capacity: int | None = None,
    ordered: bool = False,
    align: Align = "grid",
    implementation: Implementation = None,
) -> TileIndex:
    """List the tiles of a mask that hold an active pixel.

    The mask is data: its shape, `tile` and `capacity` are static, one compile serves every mask. An
    index costs a few microseconds; build it once for all the ops that share a mask.

    Args:
        mask: bool[B, H, W], of an op's output.
        tile: (height, width) in pixels, any positive ints; (1, 1) lists single pixels; None lets
            the tuning table choose.
        capacity: room in the list; None makes room for the most tiles that a mask of this shape can
            have, and so does a larger one. A smaller one saves memory; when it does not suffice,
            `overflow` is set, and `js.checked()` raises. With 0, any active tile is an overflow.
        ordered: list in ascending order (per component: by the raster position of a tile's first
            pixel), as `js.config(deterministic=True)` does, too. Otherwise the order is whichever
            is fastest, and may differ from call to call. Where a mesh splits the images, each
            shard lists its own, and -1 stands between the tiles of two shards.
        align: "grid", or "component": each 8-connected component has tiles of its own, from the
            corner of its bounding box. Tiles of two components may overlap.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A `TileIndex`.

    Raises:
        TypeError, ValueError: for a wrong rank, dtype, tile, capacity or alignment, for more tiles
            than int32 can count, and when a named implementation cannot run.
    """
    index = build_index(mask, tile, capacity, ordered, align, implementation)
    shapes = f"bool{list(index.shape)}, tile {index.tile[0]}x{index.tile[1]}"
    record("tile_index", shapes, plan("tile_index", implementation, NAMES), None, index)
    return index


def build_index(
    mask: Bool[ArrayLike, "B H W"],
    tile: tuple[int, int] | None = None,
    capacity: int | None = None,
    ordered: bool = False,
    align: Align = "grid",
    implementation: Implementation = None,
) -> TileIndex:
    """As `tile_index`, for an op that lists a mask itself: no call of its own for `js.explain`."""
    shape = check_spatial_mask(mask)
    check_align(align)
    if not isinstance(ordered, (bool, np.bool_)):
        raise TypeError(f"ordered must be a bool, not {type(ordered).__name__}")
    tile = default_tile() if tile is None else check_tile(tile)
    check_size(shape, tile, align)
    room = room_for(shape, tile, align, capacity)
    mask = jnp.asarray(mask)
    if align == "grid":
        key = implementation_key(implementation)
        spec = ListSpec(shape[2], tile, room, in_order(ordered), align, key)
        words, ids, count, overflow = list_mask(mask, spec)
        return TileIndex(ids, count, overflow, words, tile, shape, room)
    return index_of_words(
        pack_mask(mask, implementation=implementation),
        shape[2],
        tile,
        capacity=room,
        ordered=ordered,
        align=align,
        implementation=implementation,
    )
