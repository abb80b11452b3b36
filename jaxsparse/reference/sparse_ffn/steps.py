"""A feed-forward network whose activations are mostly zero, in plain jnp, step by step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax


def product(a: jax.Array, b: jax.Array, precision: lax.Precision) -> jax.Array:
    """[m, k] @ [k, n], rounded to their dtype."""
    return lax.dot(a, b, precision=precision)


def activations(pre: jax.Array, up: jax.Array | None, activation: str) -> jax.Array:
    """act(pre), or act(pre) * up: exactly 0 where act(pre) is, whatever `up` holds."""
    h = jax.nn.relu(pre)
    if activation == "relu2":
        h = h * h
    if up is None:
        return h
    zero = jnp.zeros_like(h)
    idle = h == zero
    return jnp.where(idle, zero, h * jnp.where(idle, zero, up))


def largest(h: jax.Array, k: int) -> jax.Array:
    """bool[tokens, f]: the k entries of each row that are largest in absolute value; of equal ones
    those of lower index. NaN counts as infinite.
    """
    size = jnp.where(jnp.isnan(h), jnp.inf, jnp.abs(h)).astype(h.dtype)
    least = lax.top_k(size, k)[0][:, -1:]
    above, equal = size > least, size == least
    left = k - jnp.sum(above, axis=1, keepdims=True, dtype=jnp.int32)
    return above | (equal & (jnp.cumsum(equal, axis=1, dtype=jnp.int32) <= left))


def keep(h: jax.Array, kept: jax.Array | None) -> jax.Array:
    """h where it is kept; None keeps everything."""
    return h if kept is None else jnp.where(kept, h, jnp.zeros_like(h))


def hidden(
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    activation: str,
    top_k: int | None,
    precision: lax.Precision,
    choose: Callable[[jax.Array, int], jax.Array] = largest,
) -> tuple[jax.Array, jax.Array, jax.Array | None, jax.Array | None]:
    """(h, pre, up, kept): what the last product takes, and what it was made of."""
    up = product(x, w_up, precision)
    pre, up = (up, None) if w_gate is None else (product(x, w_gate, precision), up)
    h = activations(pre, up, activation)
    kept = None if top_k is None or top_k >= h.shape[1] else choose(h, top_k)
    return keep(h, kept), pre, up, kept
