"""Frozen weights by definition: the dense product with the kept weights in place."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.core.activations import ACTIVATIONS

Values = jax.Array | np.ndarray


def dense_weight(values: Values, where: np.ndarray, shape: tuple[int, ...]) -> Values:
    """`values` [kept] at the places `where` int[kept] of a flat zero weight of `shape`, [k, n] or
    HWIO; numpy stays numpy.
    """
    if isinstance(values, np.ndarray):
        flat = np.zeros(int(np.prod(shape)), values.dtype)
        flat[where] = values
        return flat.reshape(shape)
    flat = jnp.zeros(int(np.prod(shape)), values.dtype)
    return flat.at[where].set(values, unique_indices=True).reshape(shape)


def pruned_matmul(
    x: jax.Array,
    values: Values,
    where: np.ndarray,
    outputs: int,
    bias: jax.Array | None,
    *,
    activation: str | None,
    precision: lax.Precision | None,
    out_dtype: np.dtype,
) -> jax.Array:
    """activation(x[m, k] @ w[k, n] + bias), summed in float32, rounded once.

    w has `values` [kept] at the flat places `where` int[kept]; n is `outputs`.
    """
    weight = jnp.asarray(dense_weight(values, where, (x.shape[1], outputs)))
    y = jnp.dot(x, weight, precision=precision, preferred_element_type=jnp.float32)
    y = y if bias is None else y + jnp.expand_dims(bias, tuple(range(y.ndim - 1)))
    return ACTIVATIONS[activation](y).astype(out_dtype)
