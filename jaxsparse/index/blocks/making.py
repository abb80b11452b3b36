"""What makers of masks share: their arguments, and a mask of ranges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.checks import check_array
from jaxsparse.core.integers import as_int32, static_int
from jaxsparse.index.blocks.grid import Grid, make_grid
from jaxsparse.index.blocks.lists import is_known
from jaxsparse.index.blocks.ranges import arrays_of_ranges
from jaxsparse.index.blocks.types import BlockMask, mask_of

Size = int | tuple[int, int]

#: Beyond every position: a sum with a position does not wrap.
_FAR = 2**30


def grid_of(block_size: Any, q_len: Any, kv_len: Any) -> Grid:
    """The blocks of q_len x kv_len positions; `kv_len` None: as many keys as queries."""
    return make_grid(block_size, q_len, q_len if kv_len is None else kv_len)


def places(grid: Grid) -> jax.Array:
    """int32[1, 1, T], the queries."""
    return jnp.arange(grid.q_len, dtype=jnp.int32)[None, None]


def each(name: str, value: Any) -> jax.Array:
    """An int, int[] or int[B] as int32[1 or B, 1, 1].

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(static_int(value))
        except TypeError:
            what = type(value).__name__
            raise TypeError(f"{name} must be an int, int[] or int[B], not {what}") from None
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {value.dtype}; it takes integers")
    if value.ndim > 1:
        raise ValueError(f"{name} has shape {value.shape}; it takes an int, int[] or int[B]")
    limits = jnp.iinfo(value.dtype)
    clip = jnp.clip if isinstance(value, jax.Array) else np.clip
    value = clip(value, max(int(limits.min), -_FAR), min(int(limits.max), _FAR))
    return jnp.asarray(value.astype(np.int32)).reshape(-1, 1, 1)


def rows_of(name: str, value: Any) -> jax.Array:
    """int[n] or int[B, n] as int32[1 or B, n].

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array(name, value)
    value = as_int32(name, value)
    if value.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {value.shape}; it takes [n] or [B, n]")
    return value if value.ndim == 2 else value[None]


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
