"""A stack of saturated layers in plain jnp: one scan over the packed layers, so that its trace does
not grow with the depth."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.core.contract import BoundedNetworkRow as Row
from jaxsparse.core.segments import add_up, gather, owners, segments
from jaxsparse.reference.bounded_matmul import bound

_IMAGES = 256


def bounded_network(x: jax.Array, net: Any, ordered: bool = False) -> jax.Array:
    """The stack's values, x f32[batch, n_in] -> f32[batch, n_out]; sums in float32.

    Args:
        x: images.
        net: a `Network`; its `shapes` are static, its arrays are data.
        ordered: results and gradients repeat bit by bit.
    """
    if 0 in (x.shape[0], net.n_out):
        return jnp.zeros((x.shape[0], net.n_out), x.dtype)
    width = max([net.n_in, *(d for _, d, _, _ in net.shapes)])
    kinds = sorted({rows for _, _, _, rows in net.shapes})
    layers = [_layer(net, rows, width, ordered) for rows in kinds]

    def step(state: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        kind = jnp.sum(jnp.asarray(kinds) < row[0][Row.UNIT_ROWS], dtype=jnp.int32)
        return jax.lax.switch(kind, layers, state, *row), None

    table = jnp.asarray(net.table).astype(jnp.int32)
    state = jnp.pad(x, ((0, 0), (0, width - net.n_in)))
    state, _ = jax.lax.scan(step, state, (table, jnp.asarray(net.uppers)))
    if net.expand is None:
        return state[:, : net.n_out]
    copied = segments(jnp.asarray(net.expand), width, ordered=ordered)
    return jax.vmap(lambda image: gather(image, copied))(state)


def _layer(net: Any, rows: int, width: int, ordered: bool) -> Any:
    """A function (state, row of the table, upper) -> state of a layer whose units have `rows` rows:
    slices as long as the longest such layer's."""
    shapes = [shape for shape in net.shapes if shape[3] == rows]
    units = max(d // rows for _, d, _, _ in shapes)
    entries = max(e for _, _, e, _ in shapes)
    starts = jnp.pad(jnp.asarray(net.starts), (0, units + 1))
    indices = jnp.pad(jnp.asarray(net.indices).reshape(-1, 4), ((0, entries // 4), (0, 0)))
    # In fours, as the table counts them: an int32 then reaches eight billion weights.
    weights = jnp.pad(jnp.asarray(net.weights).reshape(-1, 4), ((0, entries * rows // 4), (0, 0)))
    biases = jnp.pad(jnp.asarray(net.bias), (0, units * rows))

    def run(state: jax.Array, row: jax.Array, upper: jax.Array) -> jax.Array:
        def part(array: jax.Array, first: jax.Array, size: int) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(array, first, size)

        used = row[Row.DISTINCT] // rows
        begins = part(starts, row[Row.STARTS], units + 1)
        # Entries past the last unit are those of one more, which no unit is.
        ends = jnp.where(jnp.arange(units + 1) <= used, begins, entries)
        owner = owners(jnp.append(ends, entries), entries)
        exists = owner < used
        taken = part(indices, row[Row.INDEX_QUADS], entries // 4).reshape(-1).astype(jnp.int32)
        factors = part(weights, row[Row.WEIGHT_QUADS], entries * rows // 4).reshape(entries, rows)
        factors = jnp.where(exists[:, None], factors, 0.0)
        bias = part(biases, row[Row.BIASES], units * rows)
        read = segments(taken, width, ordered=ordered)
        summed = segments(owner, units + 1, ordered=ordered, ascending=True)

        def image(values: jax.Array) -> jax.Array:
            # An entry that the layer does not have must not bring in a NaN.
            found = jnp.where(exists, gather(values, read), 0.0)[:, None]
            sums = add_up(found * factors, summed, units + 1)
            y = bound(sums[:units].reshape(-1) + bias, upper)
            y = jnp.where(jnp.arange(units * rows) < row[Row.DISTINCT], y, 0.0)
            return jnp.pad(y, (0, width - units * rows))

        return jax.lax.map(image, state, batch_size=min(_IMAGES, state.shape[0]))

    return run
