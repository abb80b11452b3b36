"""The best experts of each token in plain jnp: softmax, top-k, sums of the probabilities."""

import jax
import jax.numpy as jnp


def probabilities_of(logits: jax.Array, counts: jax.Array | None) -> jax.Array:
    """f32[..., tokens, experts] -> softmax of each token; 0 for those that do not count."""
    if counts is None:
        return jax.nn.softmax(logits, axis=-1)
    here = counts[..., None]
    whole = jnp.where(here, logits, jnp.zeros_like(logits))
    return jnp.where(here, jax.nn.softmax(whole, axis=-1), jnp.zeros_like(logits))


def weights_of(probabilities: jax.Array, ids: jax.Array, normalize: bool) -> jax.Array:
    """f32[..., tokens, experts], s32[..., tokens, k] -> f32[..., tokens, k]; id -1: weight 0."""
    known = ids >= 0
    at = jnp.where(known, ids, 0)
    weights = jnp.take_along_axis(probabilities, at, axis=-1)
    if normalize:
        total = jnp.sum(weights, axis=-1, keepdims=True)
        weights = weights / jnp.where(known, total, jnp.ones_like(total))
    return jnp.where(known, weights, jnp.zeros_like(weights))


def top_experts(
    logits: jax.Array, counts: jax.Array | None, top_k: int, normalize: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """f32[lists, tokens, experts], bool[lists, tokens] -> ids s32[lists, tokens, k], weights f32 of
    the same shape, sums f32[lists, 1, experts].
    """
    ids = jax.lax.top_k(jnp.where(jnp.isnan(logits), jnp.nan, logits), top_k)[1]
    if counts is not None:
        ids = jnp.where(counts[..., None], ids, -1)
    probabilities = probabilities_of(logits, counts)
    weights = weights_of(probabilities, ids, normalize)
    return ids, weights, jnp.sum(probabilities, axis=1, keepdims=True)
