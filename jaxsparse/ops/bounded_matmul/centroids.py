"""Activations as a few centroids, and the rows that differ from them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import Layer
from jaxsparse.recorder import MIXED, ZERO, Recorder

CENTROIDS = 32


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "centroids", "nearest", "empty"),
    meta_fields=("tolerance",),
)
@dataclasses.dataclass(frozen=True, eq=False)
class Converged:
    """Activations as centroids and residues: a pytree.

    Attributes:
        values: float32[batch, n]; undefined in rows whose residue is empty.
        centroids: float32[k, n].
        nearest: int32[batch], each row's centroid.
        empty: bool[batch], no element differs from the centroid's by more than the tolerance.
        tolerance: what counts as equal.
    """

    values: Float[Array, "batch n"]
    centroids: Float[Array, "k n"]
    nearest: Int32[Array, "batch"]
    empty: Bool[Array, "batch"]
    tolerance: float

    def materialize(self) -> Float[Array, "batch n"]:
        """The values, float32[batch, n]."""
        return jnp.where(self.empty[:, None], self.centroids[self.nearest], self.values)


def gather_centroids(values: Float[Array, "batch n"], count: int, tolerance: float) -> Converged:
    """Take `count` rows, evenly spaced, as centroids; each row's is the one with the fewest
    elements that differ."""
    batch = values.shape[0]
    picked = jnp.arange(count) * (batch // max(count, 1))
    centroids = values[picked]

    def closer(best: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[Any, None]:
        least, nearest = best
        # Not (a <= b), so that a NaN differs from everything.
        apart = jnp.sum(~(jnp.abs(values - centroids[k][None]) <= tolerance), -1, dtype=jnp.int32)
        return (jnp.minimum(least, apart), jnp.where(apart < least, k, nearest)), None

    # From the values themselves, so that under shard_map it varies as they do.
    start = jnp.sum(values[:, :0], -1).astype(jnp.int32)
    best = (start + values.shape[1] + 1, start)
    (least, nearest), _ = jax.lax.scan(closer, best, jnp.arange(count, dtype=jnp.int32))
    return Converged(values, centroids, nearest, least == 0, tolerance)


def advance(
    run: Callable[..., Activations], state: Converged, layer: Layer, record: bool = True
) -> Converged:
    """One layer: the centroids, and the rows that still differ.

    Args:
        run: `bounded_matmul`, of whose options `record` is left.
        state: the layer's input.
        layer: the layer.
        record: False writes every value of the rows that differ, and of the others zeros, instead
            of codes that are filled in here.
    """
    centroids = run(state.centroids, layer, record=False).values
    # An empty residue is passed on as a decided row: listed nowhere, neither read nor computed.
    codes = jnp.where(state.empty, jnp.uint8(ZERO), jnp.uint8(MIXED))[:, None]
    skipped = Activations(state.values, Recorder(codes, max(layer.n_in, 1), layer.upper))
    out = run(skipped, dataclasses.replace(layer, zero_stays=True), record=record)
    values = out.materialize() if record else out.values
    apart = ~(jnp.abs(values - centroids[state.nearest]) <= state.tolerance)
    return Converged(
        values, centroids, state.nearest, state.empty | ~apart.any(-1), state.tolerance
    )
