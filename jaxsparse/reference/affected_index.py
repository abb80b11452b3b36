"""The tiles that an edit reaches at several resolutions, in plain jnp."""

from collections.abc import Iterator, Sequence

import jax

from jaxsparse.mask.reach import affected
from jaxsparse.reference.bits import pack_mask
from jaxsparse.reference.tile_index import tile_index

Pair = tuple[int, int]
Layers = Sequence[tuple[Pair, Pair]]


def affected_masks(mask: jax.Array, stages: Sequence[Layers]) -> Iterator[jax.Array]:
    """mask bool[B,H,W] -> for each stage bool[B,Ho,Wo]: what it changes in the result of the
    stage's last layer. A layer is (window, strides) of a convolution padded "SAME".
    """
    for layers in stages:
        for window, strides in layers:
            mask = affected(mask, window, strides, "SAME", 1)
        yield mask


def affected_index(
    mask: jax.Array, *, stages: Sequence[Layers], tile: Pair, capacities: Sequence[int]
) -> tuple[jax.Array, ...]:
    """mask bool[L,B,H,W] -> words uint32[L,B,Ho,Wo/32], ids int32[L,capacity], count int32[L],
    overflow bool[L] of each stage, one after the other.
    """
    lists, images, height, width = mask.shape
    flat = mask.reshape(lists * images, height, width)
    found = []
    for seen, capacity in zip(affected_masks(flat, stages), capacities, strict=True):
        words = pack_mask(seen.reshape(lists, images, *seen.shape[1:]))
        side = min(tile[0], max(seen.shape[1], 1)), min(tile[1], max(seen.shape[2], 1))
        listed = tile_index(words, width=seen.shape[2], tile=side, capacity=capacity)
        found += [words, *listed]
    return tuple(found)
