"""From words to lists, on whichever implementation runs: the call under `TileIndex.from_words`.

A list in any order needs no synchronisation between blocks of threads (unordered index
construction: SparDA 3.4).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsparse.core.batching import kept
from jaxsparse.ffi import dispatch, ffi_call
from jaxsparse.ffi.fold import fold_lists
from jaxsparse.index.checks import max_tiles
from jaxsparse.index.shards import Kind, split_lists
from jaxsparse.reference.component_index import component_index as reference_components
from jaxsparse.reference.tile_index import tile_index as reference_tiles

Lists = tuple[jax.Array, jax.Array, jax.Array]

# The CUDA kernels' unit of work per block and the most blocks of one list (cuda/index/compact.cuh).
_ITEMS_PER_BLOCK = 128
_MAX_BLOCKS = 1024


class ListSpec(NamedTuple):
    """What a list is, apart from its words: static."""

    width: int
    tile: tuple[int, int]
    capacity: int
    ordered: bool
    align: str
    implementation: Any


@functools.partial(jax.jit, static_argnums=1)
def list_tiles(words: jax.Array, spec: ListSpec) -> Lists:
    """The list of one packed mask.

    Args:
        words: uint32[B, H, ceil(width/32)].
        spec: static.

    Returns:
        ids int32[capacity] (int32[capacity, 3] per component), count int32[], overflow bool[].
    """
    ids, count, overflow = _lister(spec)(words[None])
    return ids[0], count[0], overflow[0]


@kept
def _lister(spec: ListSpec) -> Callable[[jax.Array], Lists]:
    """words[L,B,H,W/32] -> L lists."""
    ids: Kind = "ids" if spec.align == "grid" else "corners"
    return folded(spec, (ids, "count", "overflow"), _native, _reference)


def folded(
    spec: ListSpec,
    kinds: tuple[Kind, ...],
    native: Callable[[ListSpec, str, jax.Array], tuple[jax.Array, ...]],
    reference: Callable[[ListSpec, jax.Array], tuple[jax.Array, ...]],
) -> Callable[[jax.Array], Any]:
    """[L,B,H,...], masks or words -> L lists, of these kinds of results. Its vmap rule folds the
    batch axis into L; a mesh splits the masks, and the images where a list has room for all tiles.
    """

    def call(parts: int) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
        part = spec._replace(capacity=spec.capacity // parts)
        return dispatch(
            "tile_index",
            spec.implementation,
            cuda=functools.partial(native, part, "cuda"),
            cpu=functools.partial(native, part, "cpu"),
            reference=functools.partial(reference, part),
        )

    def run_here(masks: jax.Array) -> tuple[jax.Array, ...]:
        why = limited(spec, masks.shape[1:3])
        return split_lists(["mask"], ["l b . ."], kinds, call, why)(masks)

    return fold_lists(run_here)


def limited(spec: ListSpec, images_and_rows: tuple[int, ...]) -> str:
    """Why a mesh does not split the images of a list: it has less room than tiles; else ""."""
    images, height = images_and_rows
    most = max_tiles((images, height, spec.width), spec.tile, spec.align)
    if spec.capacity == most:
        return ""
    return (
        f"a list with room for {spec.capacity} of {most} tiles is one list of all images, and "
        "without capacity= each shard lists its own"
    )


def handler_tile(spec: ListSpec, height: int) -> tuple[int, int]:
    """The same tiles, none larger than the image."""
    return min(spec.tile[0], max(height, 1)), min(spec.tile[1], max(spec.width, 1))


def _reference(spec: ListSpec, words: jax.Array) -> Lists:
    function = reference_tiles if spec.align == "grid" else reference_components
    tile = handler_tile(spec, words.shape[2])
    return function(words, width=spec.width, tile=tile, capacity=spec.capacity)


def _native(spec: ListSpec, platform: str, words: jax.Array) -> Lists:
    lists, _, height, _ = words.shape
    tile_h, tile_w = handler_tile(spec, height)
    fields = () if spec.align == "grid" else (3,)
    results = [
        ((lists, spec.capacity, *fields), np.int32),
        ((lists,), np.int32),
        ((lists,), np.bool_),
        ((scratch_size(spec, platform, words.shape),), np.int32),
    ]
    target = "jaxsparse_tile_index" if spec.align == "grid" else "jaxsparse_component_index"
    ids, count, overflow, _ = ffi_call(
        target,
        results,
        words,
        width=spec.width,
        tile_h=tile_h,
        tile_w=tile_w,
        ordered=int(spec.ordered),
    )
    return ids, count, overflow


def scratch_size(spec: ListSpec, platform: str, shape: tuple[int, ...]) -> int:
    """The workspace of a handler, in int32, for words of this shape [L, B, H, W/32]."""
    if platform == "cpu":
        return 0
    lists, images, height, words = shape
    if spec.align == "component":
        items = images * height * words
        before = 2 * images * height * spec.width + items
    else:
        items = images * -(-height // handler_tile(spec, height)[0]) * words
        before = 0
    sums = items + min(-(-items // _ITEMS_PER_BLOCK), _MAX_BLOCKS) if spec.ordered else 0
    return lists * (before + sums)
