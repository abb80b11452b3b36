"""Bit-packed masks in plain jnp."""

import jax
import jax.numpy as jnp


def pack_mask(mask: jax.Array) -> jax.Array:
    """bool[..., n] -> uint32[..., ceil(n/32)], little-endian; bits past n are zero."""
    *axes, n = mask.shape
    words = -(-n // 32)
    mask = jnp.pad(mask, [(0, 0)] * len(axes) + [(0, 32 * words - n)])
    bits = mask.reshape(*axes, words, 32).astype(jnp.uint32)
    return (bits << _places(bits.ndim)).sum(-1, dtype=jnp.uint32)


def unpack_mask(words: jax.Array, n: int) -> jax.Array:
    """uint32[..., ceil(n/32)] -> bool[..., n]."""
    bits = (words[..., None] >> _places(words.ndim + 1)) & 1
    return bits.reshape(*words.shape[:-1], 32 * words.shape[-1])[..., :n].astype(bool)


def _places(rank: int) -> jax.Array:
    """The places of a word's bits, along the last of `rank` axes."""
    return jax.lax.broadcasted_iota(jnp.uint32, (*(1,) * (rank - 1), 32), rank - 1)
