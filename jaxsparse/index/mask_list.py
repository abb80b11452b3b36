"""From a mask to its words and the list of its active tiles in one custom call: what `tile_index`
runs for a grid-aligned list.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np

from jaxsparse.bits.pack import word_count
from jaxsparse.core.batching import kept
from jaxsparse.ffi import ffi_call
from jaxsparse.index.compact import ListSpec, folded, handler_tile, scratch_size
from jaxsparse.reference.bits import pack_mask
from jaxsparse.reference.tile_index import tile_index as reference_tiles

WordsAndLists = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

# Where blocks exchange their sums (cuda/index/portfolio_index.h: kPortfolioScratch).
PORTFOLIO_SCRATCH = 2 * 8 * 256


@functools.partial(jax.jit, static_argnums=1)
def list_mask(mask: jax.Array, spec: ListSpec) -> WordsAndLists:
    """The words and the list of one mask.

    Args:
        mask: bool[B, H, width].
        spec: static; `align` is "grid".

    Returns:
        words uint32[B, H, ceil(width/32)], ids int32[capacity], count int32[], overflow bool[].
    """
    words, ids, count, overflow = lister(spec)(mask[None])
    return words[0], ids[0], count[0], overflow[0]


@kept
def lister(spec: ListSpec) -> Callable[[jax.Array], WordsAndLists]:
    """mask[L,B,H,W] -> the words and L lists."""
    return folded(spec, ("words", "ids", "count", "overflow"), _native, _reference)


def _reference(spec: ListSpec, mask: jax.Array) -> WordsAndLists:
    words = pack_mask(mask)
    tile = handler_tile(spec, mask.shape[2])
    return words, *reference_tiles(words, width=spec.width, tile=tile, capacity=spec.capacity)


def _native(spec: ListSpec, platform: str, mask: jax.Array) -> WordsAndLists:
    lists, images, height, width = mask.shape
    shape = (lists, images, height, word_count(width))
    scratch = 0
    if platform == "cuda":
        scratch = max(PORTFOLIO_SCRATCH, scratch_size(spec, platform, shape))
    tile_h, tile_w = handler_tile(spec, height)
    words, ids, count, overflow, _ = ffi_call(
        "jaxsparse_mask_index",
        [
            (shape, np.uint32),
            ((lists, spec.capacity), np.int32),
            ((lists,), np.int32),
            ((lists,), np.bool_),
            ((scratch,), np.int32),
        ],
        mask,
        tile_h=tile_h,
        tile_w=tile_w,
        ordered=int(spec.ordered),
    )
    return words, ids, count, overflow
