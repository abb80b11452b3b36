"""Routing in plain jnp: a stable sort of the assignments by expert."""

import jax
import jax.numpy as jnp


def route(
    expert_ids: jax.Array, top_k: int, num_experts: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """s32[lists, assignments] -> order, order // top_k (both s32[lists, assignments]), group_sizes
    s32[lists, experts].
    """
    known = (expert_ids >= 0) & (expert_ids < num_experts)
    bucket = jnp.where(known, expert_ids, num_experts)
    # Not argsort, whose result forgets the mesh axes that the ids vary over (shard_map).
    places = jnp.zeros_like(bucket) + jnp.arange(bucket.shape[1], dtype=jnp.int32)[None]
    order = jax.lax.sort((bucket, places), dimension=1, is_stable=True, num_keys=1)[1]
    lists = jnp.arange(expert_ids.shape[0], dtype=jnp.int32)[:, None]
    none = jnp.zeros_like(bucket, shape=(expert_ids.shape[0], num_experts + 1))
    sizes = none.at[lists, bucket].add(1)
    return order, order // max(top_k, 1), sizes[:, :num_experts]
