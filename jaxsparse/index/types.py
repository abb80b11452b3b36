"""`TileIndex`: the active tiles of a mask, a value to build once and pass to many ops."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, UInt32

from jaxsparse.bits import pack_mask, unpack_mask
from jaxsparse.bits.pack import word_count
from jaxsparse.core.integers import static_int
from jaxsparse.core.types import Align
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, Rule, Shards, partitioned
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.index.checks import (
    check_align,
    check_capacity,
    check_single,
    check_size,
    check_tile,
    max_tiles,
)
from jaxsparse.index.compact import ListSpec, list_tiles
from jaxsparse.reference import bits as reference_bits
from jaxsparse.select.config import settings

_DATA = ("ids", "count", "overflow", "words")
_META = ("tile", "shape", "capacity", "align")


@functools.partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TileIndex:
    """The active tiles of a mask bool[B, H, W]: a pytree of fixed shape whatever the mask holds.

    Attributes:
        ids: int32[capacity]; tile (b, i, j) of `rows` x `cols` tiles an image is (b*rows + i)*cols
            + j. With align="component" int32[capacity, 3]: (b, y0, x0), the tile's first pixel. -1
            after the last. Where the batch is sharded over a mesh, each shard holds the tiles of
            its own images, and -1 after the last of these. Moved to one device it is valid, but its
            list is longer than that of `tile_index(index.to_mask(), ...)`; `js.checked()` raises.
        count: int32[], how many tiles are active, also when that is more than the capacity.
        overflow: bool[], count > capacity: then some `capacity` of the active tiles are listed (the
            first if ordered).
        words: uint32[B, H, ceil(W/32)], the packed mask. In a list of the grid made by hand every
            set pixel must lie in a listed tile: results at other set pixels are undefined on a GPU.
            With align="component" a set pixel that no listed tile holds counts as not set.
        tile: (th, tw), in pixels.
        shape: (B, H, W).
        capacity: how many tiles the list has room for.
        align: "grid", or "component": tiles start at the corner of their component's bounding box.

    Under `vmap` the arrays have a leading batch axis, as with any pytree.
    """

    ids: Int32[Array, "capacity"] | Int32[Array, "capacity 3"]
    count: Int32[Array, ""]
    overflow: Bool[Array, ""]
    words: UInt32[Array, "B H words"]
    tile: tuple[int, int]
    shape: tuple[int, int, int]
    capacity: int
    align: Align = "grid"

    @classmethod
    @takes_variables
    def from_words(
        cls,
        words: UInt32[ArrayLike, "B H words"],
        width: int,
        tile: tuple[int, int],
        *,
        capacity: int | None = None,
        ordered: bool = False,
        align: Align = "grid",
        implementation: Implementation = None,
    ) -> TileIndex:
        """The index of a packed mask uint32[B, H, ceil(width/32)], whose bits past the width are
        ignored; the rest as in `tile_index`.

        Raises:
            TypeError, ValueError: for a wrong rank, dtype or option, naming it.
        """
        words = _check_words(words)
        try:
            width = static_int(width)
        except TypeError:
            raise TypeError(f"width={width!r}; it takes an int") from None
        if width < 0 or words.shape[2] != word_count(width):
            raise ValueError(f"words has {words.shape[2]} words a row; width={width} does not fit")
        return index_of_words(
            _clear_past(words, width),
            width,
            tile,
            capacity=capacity,
            ordered=ordered,
            align=align,
            implementation=implementation,
        )

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, cols): the tiles of an image, aligned to its corner."""
        return -(-self.shape[1] // self.tile[0]), -(-self.shape[2] // self.tile[1])

    @property
    def n_tiles(self) -> int:
        """How many tiles a full mask has."""
        return self.shape[0] * self.grid[0] * self.grid[1]

    @property
    def may_overflow(self) -> bool:
        """Whether some mask of this shape has more tiles than `capacity`."""
        return self.capacity < max_tiles(self.shape, self.tile, self.align)

    def to_mask(self) -> Bool[Array, "B H W"]:
        """The mask that was indexed, bool[B, H, W]."""
        return unpack_mask(self.words, self.shape[2])

    def tile_mask(self) -> Bool[Array, "B rows cols"]:
        """Which tiles are listed, bool[B, rows, cols].

        Raises:
            ValueError: with align="component", whose tiles do not share a grid: use `cover`.
        """
        return _tile_mask(self)

    def cover(self) -> Bool[Array, "B H W"]:
        """The active pixels that some listed tile holds, bool[B, H, W]: what an op computes.

        Without overflow that is the mask itself.
        """
        return _cover(self)

    def density(self) -> Float[Array, ""]:
        """The share of active pixels, float32[]; 0 for a mask without pixels."""
        return _density(self)

    def tile_density(self) -> Float[Array, ""]:
        """Active tiles over those of a full mask, float32[]; tiles of components may pass 1."""
        return _tile_density(self)

    def __repr__(self) -> str:
        head = (
            f"TileIndex(shape={self.shape}, tile={self.tile}, capacity={self.capacity}, "
            f"align={self.align!r}"
        )
        concrete = all(
            isinstance(x, (np.ndarray, jax.Array))
            and not isinstance(x, Tracer)
            and getattr(x, "is_fully_addressable", True)
            for x in (self.ids, self.count, self.overflow, self.words)
        )
        if not concrete or self.count.ndim:
            return head + ")"
        more = ", overflow" if bool(self.overflow) else ""
        return f"{head}, count={int(self.count)}{more})"


@jax.jit
def _tile_mask(index: TileIndex) -> jax.Array:
    check_single("the index", index)
    if index.align != "grid":
        raise ValueError("tile_mask() needs align='grid'; with 'component' see cover()")
    return _listed(index) if index.may_overflow else _listed_on_mesh(index)


def _listed(index: TileIndex) -> jax.Array:
    slots = jnp.where(index.ids < 0, index.n_tiles, index.ids)
    listed = jnp.zeros(index.n_tiles, bool).at[slots].set(True, mode="drop")
    return listed.reshape(index.shape[0], *index.grid)


#: Each shard has the words of its own images. Which of the tiles of all images are in its part of
#: the list is not known.
_OF_IMAGES = Rule("tile_mask", ("b . .", None), ("b . .",), ("b",), ("the index", "the index"))


@custom_vmap
def _listed_on_mesh(index: TileIndex) -> jax.Array:
    """The tiles of an index that holds all of them, which a mesh may split by the images."""

    def in_shard(shards: Shards, words: jax.Array, _: None) -> jax.Array:
        return _tiles_of(words, index.shape[2], index.tile)

    whole = lambda words, index: _listed(index)  # noqa: E731
    return partitioned(_OF_IMAGES, whole, in_shard)(index.words, index)


@_listed_on_mesh.def_vmap
def _each_listed(axis_size: int, in_batched: list[TileIndex], index: TileIndex):
    axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched[0])
    return jax.vmap(_listed, in_axes=(axes,), axis_size=axis_size)(index), True


def _tiles_of(words: jax.Array, width: int, tile: tuple[int, int]) -> jax.Array:
    """bool[B, rows, cols], the tiles that hold a set bit of words uint32[B, H, words]."""
    mask = reference_bits.unpack_mask(words, n=width)
    images, height, _ = mask.shape
    (th, tw), rows, cols = tile, -(-height // tile[0]), -(-width // tile[1])
    padded = jnp.pad(mask, ((0, 0), (0, rows * th - height), (0, cols * tw - width)))
    return padded.reshape(images, rows, th, cols, tw).any((2, 4))


@jax.jit
def _cover(index: TileIndex) -> jax.Array:
    check_single("the index", index)
    mask = index.to_mask()
    if not index.may_overflow or mask.size == 0:
        return mask
    (th, tw), (_, height, width) = index.tile, index.shape
    if index.align == "grid":
        tiles = jnp.repeat(index.tile_mask(), min(th, height), axis=1)[:, :height]
        return mask & jnp.repeat(tiles, min(tw, width), axis=2)[:, :, :width]
    return mask & _rectangles(index.ids, index.shape, index.tile)


@jax.jit
def _density(index: TileIndex) -> jax.Array:
    check_single("the index", index)
    active = jax.lax.population_count(index.words).sum(dtype=jnp.float32)
    return active / max(math.prod(index.shape), 1)


@jax.jit
def _tile_density(index: TileIndex) -> jax.Array:
    return index.count.astype(jnp.float32) / max(index.n_tiles, 1)


def index_of_words(
    words: jax.Array,
    width: int,
    tile: tuple[int, int],
    *,
    capacity: int | None = None,
    ordered: bool = False,
    align: Align = "grid",
    implementation: Implementation = None,
) -> TileIndex:
    """`TileIndex.from_words` of words that `pack_mask` wrote: their bits past the width are zero.

    Raises:
        TypeError, ValueError: for a wrong option, naming it.
    """
    shape = (words.shape[0], words.shape[1], width)
    check_align(align)
    tile = check_tile(tile)
    check_size(shape, tile, align)
    room = room_for(shape, tile, align, capacity)
    key = implementation_key(implementation)
    spec = ListSpec(width, tile, room, in_order(ordered), align, key)
    ids, count, overflow = list_tiles(words, spec)
    return TileIndex(ids, count, overflow, words, tile, shape, room, align)


def in_order(ordered: bool) -> bool:
    """Whether a list is to be in order: where that is asked for, or `deterministic` in force."""
    return bool(ordered) or settings().deterministic


def cover_words(index: TileIndex) -> jax.Array:
    """`pack_mask(index.cover())`, which `words` is where the list holds every tile."""
    return pack_mask(index.cover()) if index.may_overflow else index.words


@functools.partial(jax.jit, static_argnums=1)
def _clear_past(words: jax.Array, width: int) -> jax.Array:
    """Words whose bits past `width` are zero."""
    if width % 32 == 0:
        return words
    return words.at[..., -1].set(words[..., -1] & np.uint32((1 << width % 32) - 1))


def room_for(shape: tuple[int, int, int], tile: tuple[int, int], align: str, capacity: Any) -> int:
    """`capacity`, at most the tiles that a mask of this shape can have; these where it is None.

    Raises:
        TypeError, ValueError: when it is not an int that int32 ids can count.
    """
    most = max_tiles(shape, tile, align)
    return most if capacity is None else min(check_capacity(capacity), most)


def _rectangles(ids: jax.Array, shape: tuple[int, int, int], tile: tuple[int, int]) -> jax.Array:
    """The union of the tiles, bool[B,H,W]: differences at their corners, then two running sums."""
    images, height, width = shape
    b, y0, x0 = jnp.where(ids[:, 0] < 0, images, ids[:, 0]), ids[:, 1], ids[:, 2]
    y1 = y0 + jnp.minimum(tile[0], height - y0)
    x1 = x0 + jnp.minimum(tile[1], width - x0)
    edges = jnp.zeros((images, height + 1, width + 1), jnp.int32)
    for y, x, sign in ((y0, x0, 1), (y1, x0, -1), (y0, x1, -1), (y1, x1, 1)):
        edges = edges.at[b, y, x].add(sign, mode="drop")
    return (edges.cumsum(1).cumsum(2) > 0)[:, :height, :width]


def _check_words(words: Any) -> jax.Array:
    if getattr(words, "dtype", None) != np.uint32 or len(words.shape) != 3:
        raise TypeError(f"words must be uint32[B, H, ceil(width/32)], not {_describe(words)}")
    return jnp.asarray(words)


def _describe(value: Any) -> str:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)}"
