"""What makers of masks share: their arguments, and a mask of ranges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.index.blocks.grid import Grid, make_grid
from jaxsparse.index.blocks.lists import is_known
from jaxsparse.index.blocks.ranges import arrays_of_ranges
from jaxsparse.index.blocks.types import BlockMask, mask_of

Size = int | tuple[int, int]


def grid_of(block_size: Any, q_len: Any, kv_len: Any) -> Grid:
    """The blocks of q_len x kv_len positions; `kv_len` None: as many keys as queries."""
    return make_grid(block_size, q_len, q_len if kv_len is None else kv_len)


def places(grid: Grid) -> jax.Array:
    """int32[1, 1, T], the queries."""
    return jnp.arange(grid.q_len, dtype=jnp.int32)[None, None]


def capacity_for(bound: int, *data: jax.Array) -> int | None:
    """The slots of a mask with at most `bound` partial blocks: None, for as many as there are,
    where its data are known.
    """
    return None if all(map(is_known, data)) else bound


def of_ranges(maker: str, starts: jax.Array, stops: jax.Array, grid: Grid, bound: int) -> BlockMask:
    """The mask of ranges int32[B, 1, T], with at most `bound` partial blocks for each of B."""
    starts, stops = jnp.broadcast_arrays(starts, stops)
    capacity = capacity_for(bound * starts.shape[0], starts, stops)
    arrays = arrays_of_ranges(starts, stops, grid, capacity)
    return mask_of(f"block_masks.{maker}", arrays, grid)
