"""The lists of a mask of blocks in plain jnp: the listed places of every row and column, sorted."""

import jax
import jax.numpy as jnp

FULL, NONE = -1, -2


def block_lists(codes: jax.Array) -> tuple[jax.Array, ...]:
    """int32[b, h, Q, C], of which -1 or more lists a block -> int32[b, h, Q] how many a row lists,
    int32[b, h, Q, C] which, ascending, int32[b, h, Q, C] their codes; then the same of columns.
    After the last: block 0, code -1. Of bool, a set one is the code -1.
    """
    if codes.dtype == jnp.bool_:
        codes = jnp.where(codes, jnp.int32(FULL), jnp.int32(NONE))
    return *_by_row(codes), *_by_row(codes.swapaxes(-1, -2))


def _by_row(codes: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    counts, blocks, listed = listed_first(codes >= FULL)
    slots = jnp.take_along_axis(codes, blocks, -1)
    return counts, blocks, jnp.where(listed, slots, FULL)


def listed_first(active: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of bool[..., n]: int32[...] how many hold; int32[..., n] where, ascending and then 0; and
    which entries of that are meant.
    """
    n = active.shape[-1]
    places = jax.lax.broadcasted_iota(jnp.int32, active.shape, active.ndim - 1)
    # In a shard_map the places vary over the mesh axes of `active`, also without blocks.
    places += jnp.zeros_like(active, jnp.int32)
    found = jnp.sort(jnp.where(active, places, n), axis=-1, stable=False)
    listed = found < n
    return active.sum(-1, dtype=jnp.int32), jnp.where(listed, found, 0), listed
