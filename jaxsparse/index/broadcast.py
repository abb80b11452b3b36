"""The mask or the index that an op is given, for every image of its result."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxsparse.core.masks import check_mask
from jaxsparse.index.checks import check_single, check_size
from jaxsparse.index.types import TileIndex

#: What to do when a mask has another size than the result of a convolution.
OF_RESULT = (
    ": js.mask.propagate(mask, kernel_size, strides, padding, dilation) makes the mask of a result "
    "from that of its input"
)


def fit_mask(
    name: str, mask: Any, shape: tuple[int, int, int], of: str = "the result's mask has"
) -> Bool[Array, "B Ho Wo"] | TileIndex:
    """`mask` for a result of the spatial shape (B, Ho, Wo), bool or an index; a batch of 1 is
    repeated.

    Raises:
        TypeError, ValueError: for another dtype or shape, or a stack of indices, naming the
            argument and how to make one.
    """
    hint = OF_RESULT
    if 0 in shape[1:]:
        hint = ": the window is larger than the image with its padding, so no pixel is left"
    if isinstance(mask, TileIndex):
        if mask.shape[1] == 1 < shape[1]:  # of js.token_index
            hint = ": js.tile_index(mask) makes one of a mask [B, Ho, Wo]"
        return fit_index(name, mask, shape, "the result has", hint)
    takes = "a bool mask or a TileIndex"
    return check_mask(name, mask, shape, fixed=2, of=of, takes=takes, hint=hint)


def fit_index(
    name: str, index: TileIndex, shape: tuple[int, int, int], of: str, hint: str = ""
) -> TileIndex:
    """`index` for a result of the spatial shape (B, Ho, Wo): that of a batch of 1 is repeated.

    Raises:
        ValueError: for an index of another shape or a stack of them, naming the argument.
    """
    if index.shape != shape and (index.shape[0] != 1 or index.shape[1:] != shape[1:]):
        raise ValueError(f"{name} is a TileIndex of a mask {index.shape}; {of} {shape}{hint}")
    check_single(name, index)
    return index if index.shape == shape else _repeat(index, shape[0])


@functools.partial(jax.jit, static_argnums=1)
def _repeat(index: TileIndex, batch: int) -> TileIndex:
    """The listed tiles of one image, in each of `batch` images; an overflow stays one."""
    shape = (batch, *index.shape[1:])
    check_size(shape, index.tile, index.align)
    room = index.capacity * batch
    listed = jnp.minimum(index.count, index.capacity)
    at = jnp.arange(room, dtype=jnp.int32)
    image, slot = at // jnp.maximum(listed, 1), at % jnp.maximum(listed, 1)
    used = at < listed * batch
    ids = index.ids[slot] if index.capacity else index.ids
    if index.align == "grid":
        ids = jnp.where(used, ids + image * math.prod(index.grid), -1)
    else:
        ids = jnp.where(used[:, None], ids.at[:, 0].add(image), -1)
    words = jnp.broadcast_to(index.words, (batch, *index.words.shape[1:]))
    count = index.count * batch
    return TileIndex(ids, count, index.overflow, words, index.tile, shape, room, index.align)
