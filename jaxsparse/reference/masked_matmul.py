"""The masked product in plain jnp: its meaning, the oracle of its tests, and what other platforms
run.
"""

import jax
import jax.numpy as jnp
from jax import lax


def keep(value: jax.Array, mask: jax.Array | None, block: tuple[int, int]) -> jax.Array:
    """`value[L, r, c]` with zeros in the blocks that `mask[L or 1, ceil(r/b0), ceil(c/b1)]` leaves
    out.
    """
    if mask is None or 0 in value.shape:
        return value
    rows, columns = value.shape[1:]
    entries = jnp.repeat(mask, block[0], axis=1)[:, :rows]
    entries = jnp.repeat(entries, block[1], axis=2)[:, :, :columns]
    return jnp.where(entries, value, jnp.zeros_like(value))


def masked_matmul(
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
    *,
    blocks: tuple[tuple[int, int], ...],
    lists: int,
    precision: lax.Precision,
    out_dtype: jnp.dtype,
) -> jax.Array:
    """a[L or 1, m, k], b[L or 1, k, n], masks by block -> out_dtype[L, m, n]; sums in float32."""
    a = jnp.broadcast_to(a, (lists, *a.shape[1:]))
    b = jnp.broadcast_to(b, (lists, *b.shape[1:]))
    y = jnp.matmul(
        keep(a, a_mask, blocks[0]),
        keep(b, b_mask, blocks[1]),
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    return keep(y, out_mask, blocks[2]).astype(out_dtype)
