"""The input pixels that an output's mask reads, in plain jnp."""

from collections.abc import Sequence
from typing import Any

import jax

from jaxsparse.core.masks import where_set
from jaxsparse.mask.reach import reach
from jaxsparse.reference.bits import pack_mask, unpack_mask
from jaxsparse.reference.tile_index import tile_index


def reach_index(
    words: jax.Array,
    keep: jax.Array | None,
    *,
    window: Any,
    out_width: int,
    in_hw: tuple[int, int],
) -> tuple[jax.Array, ...]:
    """words uint32[L,B,Ho,Wo/32], keep uint32[L,B,H,W/32] or None -> words uint32[L,B,H,W/32], ids
    int32[L,B*H*W], count int32[L], overflow bool[L] of single pixels.
    """
    lists, images, height, _ = words.shape
    mask = unpack_mask(words, out_width).reshape(lists * images, height, out_width)
    seen = touched_pixels(mask, window, in_hw).reshape(lists, images, *in_hw)
    if keep is not None:
        seen &= unpack_mask(keep, in_hw[1])
    packed = pack_mask(seen)
    capacity = images * in_hw[0] * in_hw[1]
    return packed, *tile_index(packed, width=in_hw[1], tile=(1, 1), capacity=capacity)


def touched_pixels(mask: jax.Array, window: Any, in_hw: Sequence[int]) -> jax.Array:
    """bool[B,H,W]: input pixels that a tap of an active output pixel, bool[B,Ho,Wo], reads."""
    up = window.lhs_dilation
    spread = tuple((n - 1) * u + 1 if n else 0 for n, u in zip(in_hw, up, strict=True))
    top, left = window.pads
    seen = reach(mask, window.taps, window.strides, ((top, 0), (left, 0)), window.dilation, spread)
    return seen[:, :: up[0], :: up[1]]


def read_alone(x: jax.Array, mask: jax.Array, window: Any) -> jax.Array:
    """x[B,H,W,C], 0 where no active output reads it. cuDNN multiplies what lies between the taps of
    a dilated window by 0, and between windows that are smaller than their stride; there may be a
    NaN.
    """
    if 0 in (*x.shape, *mask.shape, *window.taps):
        return x
    return where_set(touched_pixels(mask, window, x.shape[1:3]), x)
