"""The saturated layer in plain jnp: its meaning, the oracle of its tests, what other platforms run,
and what is differentiated."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.segments import add_up, gather, owners, segments

_IMAGES = 256


def bounded_matmul(
    x: jax.Array,
    starts: jax.Array | np.ndarray,
    indices: jax.Array | np.ndarray,
    weights: jax.Array | np.ndarray,
    bias: jax.Array | np.ndarray,
    expand: jax.Array | np.ndarray | None,
    *,
    upper: jax.typing.ArrayLike,
    ordered: bool = False,
) -> jax.Array:
    """`min(max(x W^T + b, 0), upper)`, x f32[batch, n_in] -> f32[batch, n_out]; sums in float32.

    W is in units of one row, or of several with the same indices: `starts` int32[units + 1],
    `indices`[entries], `weights` f32[entries * rows of a unit]. `bias` f32[rows]; `expand`
    int32[n_out] names the row of each output, None: in order.

    Only stored entries multiply: a NaN or Inf reaches the outputs that have an entry for it, and no
    other. The derivative at the bounds is 0. `ordered`: results and gradients repeat bit by bit.
    """
    starts, indices = jnp.asarray(starts), jnp.asarray(indices).astype(jnp.int32)
    units, distinct = starts.shape[0] - 1, bias.shape[0]
    rows = distinct // units if units else 1
    weights, bias = jnp.asarray(weights).reshape(-1, rows), jnp.asarray(bias)
    owner = owners(starts, indices.shape[0])
    read = segments(indices, x.shape[1], ordered=ordered)
    summed = segments(owner, units, ordered=ordered, ascending=True)
    copied = None if expand is None else segments(jnp.asarray(expand), distinct, ordered=ordered)

    def image(row: jax.Array) -> jax.Array:
        sums = add_up(gather(row, read)[:, None] * weights, summed, units)
        y = bound(sums.reshape(-1) + bias, upper)
        return y if copied is None else gather(y, copied)

    if 0 in (x.shape[0], distinct):
        return jnp.zeros((x.shape[0], distinct if expand is None else expand.shape[0]), x.dtype)
    if x.shape[1] == 0:
        y = bound(bias, upper)
        y = y if copied is None else gather(y, copied)
        return jnp.broadcast_to(y, (x.shape[0], y.shape[0]))
    return jax.lax.map(image, x, batch_size=min(_IMAGES, x.shape[0]))


def bound(sums: jax.Array, upper: jax.typing.ArrayLike) -> jax.Array:
    """min(max(sums, 0), upper); a NaN stays, and at the bounds nothing passes back."""
    limit = jnp.asarray(upper, jnp.float32)
    return jnp.where(sums <= 0, 0.0, jnp.where(sums >= limit, limit, sums))
