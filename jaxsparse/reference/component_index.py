"""Tiles placed per connected component in plain jnp, always in order."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.reference.bits import unpack_mask
from jaxsparse.reference.tile_index import list_active


def component_index(
    words: jax.Array, *, width: int, tile: tuple[int, int], capacity: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """uint32[L,B,H,W/32] -> (b, y0, x0) int32[L,capacity,3], count int32[L], overflow bool[L]."""
    mask = unpack_mask(words, width)
    lists, images, height, _ = mask.shape
    n = images * height * width
    if not n:  # varying over a mesh as the words do
        count = jnp.full_like(words, 0, jnp.int32, shape=(lists,))
        return jnp.full_like(words, -1, jnp.int32, shape=(lists, capacity, 3)), count, count > 0
    pixel = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), (lists, n))
    which = jnp.arange(lists)[:, None]
    row, column = pixel // max(width, 1), pixel % max(width, 1)
    root = label(mask).reshape(lists, n)
    left = jnp.full((lists, n + 1), width, jnp.int32).at[which, root].min(column)[which, root]
    i = (row - root // max(width, 1)) // tile[0]
    j = (column - left) // tile[1]
    key = jnp.stack(lax.sort((root, i, j, pixel), dimension=1, num_keys=4))
    same = (key[:3, :, 1:] == key[:3, :, :-1]).all(0)
    first = jnp.pad(~same, ((0, 0), (1, 0)), constant_values=True)[:, :n] & (key[0] < n)
    first = jnp.zeros((lists, n), bool).at[which, key[3]].set(first)
    ids, count, overflow = list_active(first, capacity)
    b = row // max(height, 1)
    y0, x0 = root // max(width, 1) - b * height + i * tile[0], left + j * tile[1]
    origin = jnp.stack([b, y0, x0], -1)
    origin = jnp.where(ids[..., None] < 0, -1, origin[which, jnp.maximum(ids, 0)])
    return origin, count, overflow


def label(mask: jax.Array) -> jax.Array:
    """bool[L,B,H,W] -> int32: first pixel of a pixel's 8-connected component; B*H*W elsewhere."""
    lists, n = mask.shape[0], math.prod(mask.shape[1:])
    none, top = np.int32(n), np.int32(np.iinfo(np.int32).max)
    start = jnp.where(mask, jnp.arange(n, dtype=jnp.int32).reshape(mask.shape[1:]), none)
    if mask.size == 0:
        return start

    def spread(labels: jax.Array) -> jax.Array:
        low = lax.reduce_window(labels, top, lax.min, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")
        low = jnp.where(mask, low, none).reshape(lists, n)
        up = jnp.pad(low, ((0, 0), (0, 1)), constant_values=n)
        return jnp.take_along_axis(up, low, axis=1).reshape(mask.shape)

    state = lax.while_loop(
        lambda s: jnp.any(s[0] != s[1]), lambda s: (s[1], spread(s[1])), (start, spread(start))
    )
    return state[1]
