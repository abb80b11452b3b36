"""The grouped product in plain jnp: its meaning, the oracle of its tests, and what other platforms
run.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxsparse.reference import ragged


@functools.partial(jax.jit, static_argnums=1)
def clip_sizes(group_sizes: jax.Array, rows: int) -> jax.Array:
    """Sizes as they count: a negative one is zero, what reaches past the last sorted row is cut
    off.
    """
    sizes = jnp.clip(group_sizes, 0, rows)
    # The running sum stops at `rows`, before int32 could overflow.
    ends = lax.associative_scan(lambda a, b: jnp.minimum(a, rows - b) + b, sizes)
    return jnp.diff(ends, prepend=jnp.zeros(1, ends.dtype))


def owned_rows(group_sizes: jax.Array, rows: int) -> jax.Array:
    """bool[rows]: whether a group owns the sorted row."""
    return jnp.arange(rows) < clip_sizes(group_sizes, rows).sum()


def counted_rows(
    group_sizes: jax.Array, rows: int, *indices: tuple[jax.Array | None, int]
) -> jax.Array:
    """bool[rows]: whether a group owns the sorted row, and each of its indices, given with the
    number of rows that it picks from, is in range.
    """
    counted = owned_rows(group_sizes, rows)
    for index, height in indices:
        if index is not None:
            counted = counted & (index >= 0) & (index < height)
    return counted


def rows_of(values: jax.Array, indices: jax.Array | None, keep: jax.Array) -> jax.Array:
    """`values[indices]`; a row that is not kept, or whose index is out of range, is zero."""
    if indices is not None and values.shape[0] == 0:
        return jnp.zeros((indices.shape[0], *values.shape[1:]), values.dtype)
    if indices is not None:
        wild = (indices < 0) | (indices >= values.shape[0])
        keep = keep & ~wild
        values = values.at[jnp.where(wild, values.shape[0], indices)].get(mode="fill", fill_value=0)
    return jnp.where(keep[:, None], values, jnp.zeros_like(values))


def grouped_matmul(
    lhs: jax.Array,
    rhs: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    row_weights: jax.Array | None,
    *,
    num_rows: int,
    precision: lax.Precision,
    out_dtype: jnp.dtype,
) -> jax.Array:
    """lhs[m, k], rhs[g, k, n] -> out_dtype[num_rows, n]; sums, weights and combine in float32.

    A NaN or infinity in the weights of a group that has rows may reach all rows: `lax.ragged_dot`
    is a dense product on some platforms.
    """
    sorted_rows = lhs.shape[0] if gather is None else gather.shape[0]
    sizes = clip_sizes(group_sizes, sorted_rows)
    counted = counted_rows(group_sizes, sorted_rows, (gather, lhs.shape[0]), (scatter, num_rows))
    x = rows_of(lhs, gather, counted)
    rhs = jnp.where((sizes > 0)[:, None, None], rhs, jnp.zeros_like(rhs))
    y = jnp.zeros((sorted_rows, rhs.shape[2]), jnp.float32)
    if 0 not in (*x.shape, *rhs.shape):
        y = ragged.product(x, rhs, sizes, precision)
    if row_weights is not None:
        y = y * row_weights[:, None]
    y = jnp.where(counted[:, None], y, jnp.zeros_like(y))
    if scatter is not None:
        target = jnp.where(counted, scatter, num_rows)
        y = jnp.zeros((num_rows, y.shape[1]), y.dtype).at[target].add(y, mode="drop")
    return y.astype(out_dtype)
