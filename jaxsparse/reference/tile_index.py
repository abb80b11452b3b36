"""Lists of active tiles in plain jnp, always in order."""

import jax
import jax.numpy as jnp

from jaxsparse.reference.bits import unpack_mask


def tile_index(
    words: jax.Array, *, width: int, tile: tuple[int, int], capacity: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """uint32[L,B,H,W/32] -> ids int32[L,capacity], count int32[L], overflow bool[L]."""
    mask = unpack_mask(words, width)
    lists, images, height, _ = mask.shape
    th, tw = tile
    rows, cols = -(-height // th), -(-width // tw)
    mask = jnp.pad(mask, ((0, 0), (0, 0), (0, rows * th - height), (0, cols * tw - width)))
    tiles = mask.reshape(lists, images, rows, th, cols, tw).any((3, 5))
    return list_active(tiles.reshape(lists, images * rows * cols), capacity)


def list_active(active: jax.Array, capacity: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """bool[L,N] -> positions of True int32[L,capacity], then -1; their count; count > capacity."""
    lists, n = active.shape
    count = active.sum(1, dtype=jnp.int32)
    place = jnp.cumsum(active, 1, dtype=jnp.int32) - 1
    place = jnp.where(active & (place < capacity), place, capacity)
    position = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), (lists, n))
    ids = jnp.full_like(place, -1, shape=(lists, capacity))  # varies over a mesh as the mask does
    ids = ids.at[jnp.arange(lists)[:, None], place].set(position, mode="drop")
    return ids, count, count > capacity
