"""Frozen weights by definition: the dense product with the kept weights in place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.weight import dense_index
from jaxsparse.reference.activations import ACTIVATIONS


def dense_weight(pattern: Pattern, values: Any, shape: tuple[int, ...]) -> Any:
    """`values` [kept] in a zero weight of `shape`, [k, n] or HWIO; numpy stays numpy."""
    where = dense_index(pattern, shape)
    if isinstance(values, np.ndarray):
        flat = np.zeros(int(np.prod(shape)), values.dtype)
        flat[where] = values
        return flat.reshape(shape)
    flat = jnp.zeros(int(np.prod(shape)), values.dtype)
    return flat.at[where].set(values, unique_indices=True).reshape(shape)


def pruned_matmul(
    x: jax.Array,
    values: Any,
    bias: jax.Array | None,
    pattern: Pattern,
    *,
    activation: str | None,
    precision: Any,
    out_dtype: Any,
) -> jax.Array:
    """activation(x[m, k] @ w[k, n] + bias), summed in float32, rounded once."""
    weight = jnp.asarray(dense_weight(pattern, values, (pattern.n_in, pattern.n_out)))
    y = jnp.dot(x, weight, precision=precision, preferred_element_type=jnp.float32)
    y = y if bias is None else y + jnp.expand_dims(bias, tuple(range(y.ndim - 1)))
    return ACTIVATIONS[activation](y).astype(out_dtype)
