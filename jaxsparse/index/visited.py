"""How much of an index's list a kernel visits."""

import jax
import jax.numpy as jnp

from jaxsparse.index.chosen import ChosenIndex
from jaxsparse.index.mask_index import MaskIndex
from jaxsparse.index.types import TileIndex


def slots_of(index: TileIndex, platform: str) -> jax.Array:
    """int32[]: how many slots of its list a kernel visits: `count`, but of a list with holes.

    An index that was built on a mesh and moved to one device has -1 between the shards' tiles. The
    CUDA kernels pass over a -1, so they visit the list up to its last tile; the CPU kernels find
    the holes themselves. A process with one device builds no such list, nor does an op of a mask.
    """
    own = isinstance(index, (ChosenIndex, MaskIndex))
    if platform != "cuda" or own or not index.capacity or jax.device_count() == 1:
        return index.count
    listed = (index.ids if index.align == "grid" else index.ids[:, 0]) >= 0
    places = jnp.arange(1, index.capacity + 1, dtype=jnp.int32)
    complete = listed.sum(dtype=jnp.int32) == index.count
    return jnp.where(complete, jnp.max(jnp.where(listed, places, 0)), index.count)
