"""The lists of several tile sizes and the cheapest variant, in plain jnp."""

import jax
import jax.numpy as jnp

from jaxsparse.reference.bits import pack_mask
from jaxsparse.reference.tile_index import tile_index


def portfolio_index(
    mask: jax.Array,
    costs: jax.Array,
    *,
    tiles: tuple[tuple[int, int], ...],
    capacities: tuple[int, ...],
) -> tuple[jax.Array, ...]:
    """mask bool[L,B,H,W], costs float32[L,v,5] -> words uint32[L,B,H,W/32], choice int32[L], then
    ids int32[L,capacity], count int32[L] and overflow bool[L] of each tile.
    """
    words = pack_mask(mask)
    width = mask.shape[3]
    lists = [
        tile_index(words, width=width, tile=tile, capacity=capacity)
        for tile, capacity in zip(tiles, capacities, strict=True)
    ]
    count = jnp.stack([count for _, count, _ in lists], 1)
    overflow = jnp.stack([overflow for _, _, overflow in lists], 1)
    choice = choose(costs, count, overflow)
    return words, choice, *(result for each in lists for result in each)


def choose(costs: jax.Array, count: jax.Array, overflow: jax.Array) -> jax.Array:
    """The first variant of the least cost: costs float32[L,v,5] of rows (a, b, list, wave,
    per_wave), a + b*n + wave*ceil(n/per_wave), infinite where that list overflowed or for NaN, a
    where there is no such list -> int32[L].
    """
    sizes = count.shape[1]
    if costs.shape[1] == 0:
        return jnp.zeros(costs.shape[0], jnp.int32)
    named = costs[:, :, 2, None] == jnp.arange(sizes, dtype=jnp.float32)[None, None]
    visits = jnp.where(named, count[:, None, :], 0).sum(2)
    n = visits.astype(jnp.float32)
    per_wave = jnp.clip(costs[:, :, 4], 1.0, 2.0**30).astype(jnp.int32)  # no list is longer
    waves = (visits + per_wave - 1) // per_wave
    stairs = jnp.where(costs[:, :, 4] >= 1.0, costs[:, :, 3] * waves.astype(jnp.float32), 0.0)
    cost = costs[:, :, 0] + jnp.where(named.any(2), costs[:, :, 1] * n + stairs, 0.0)
    spoiled = (named & overflow[:, None, :]).any(2) | jnp.isnan(cost)
    return jnp.argmin(jnp.where(spoiled, jnp.inf, cost), 1).astype(jnp.int32)
