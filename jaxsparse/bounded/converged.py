"""Images that have become alike are computed once: after a threshold layer, a few centroids and
what differs from them.

Deep in such a network most images end in one of a few states. Some of them become centroids; an
image whose residue from its centroid is empty is neither read nor computed again, it has its
centroid's results. The others go on as they are, and join when they have converged. Exact at
tolerance 0: only equal rows share. The scheme is SNICIT's (Jiang, Huang, Yu, Ho: Accelerating
Sparse Neural Network Inference via Compression at Inference Time on GPU, 2023); residues are kept
per image, not per element.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.pack import checked
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.recorder import MIXED, ZERO, Recorder, probe

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

    def closer(best: Any, k: jax.Array) -> tuple[Any, None]:
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
    state: Converged, layer: Layer, implementation: Implementation = None, record: bool = True
) -> Converged:
    """One layer: the centroids, and the rows that still differ. `record=False` writes every value
    of these, and of the others zeros, instead of codes that are filled in here."""
    from jaxsparse.ops.bounded_matmul import bounded_matmul

    run = functools.partial(bounded_matmul, dataflow="column", implementation=implementation)
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


def converged(
    layers: Iterable[Layer],
    *,
    threshold: int = 30,
    tolerance: float = 0.0,
    centroids: int = CENTROIDS,
    implementation: Implementation = None,
) -> Callable[[Any], Activations]:
    """A stack in the converged dataflow: layer by layer up to the threshold, then centroids and
    residues.

    Args:
        layers: `Layer`s whose widths chain.
        threshold: the layer after which images become centroids and residues.
        tolerance: elements that differ by no more count as equal; 0 is exact.
        centroids: how many images become one.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A function of `Activations` or float32[batch, n_in] to Activations with one code a row. Call
        it under jit: outside of it every call traces all layers.

    Raises:
        ValueError: for no layers, widths that do not chain, a negative threshold or tolerance, or
            fewer than one centroid.
        TypeError: for another type of these, and when what is returned is differentiated.
    """
    layers = list(checked(layers))
    if not layers:
        raise ValueError("layers is empty: a network needs at least one")
    plan("bounded_matmul", implementation, NAMES)
    for name, number in (("threshold", threshold), ("centroids", centroids)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if threshold < 0 or not tolerance >= 0 or centroids < 1:
        raise ValueError(
            f"threshold={threshold}, tolerance={tolerance}, centroids={centroids}: "
            "they take >= 0, >= 0 and >= 1"
        )

    @jax.custom_vjp
    def run(acts: Any) -> Activations:
        from jaxsparse.ops.bounded_matmul import bounded_matmul

        images = acts.shape[0]
        for layer in layers[:threshold] if images else layers:
            acts = bounded_matmul(acts, layer, dataflow="column", implementation=implementation)
        values = acts.materialize() if isinstance(acts, Activations) else jnp.asarray(acts)
        if images and layers[threshold:]:
            state = gather_centroids(values, min(centroids, values.shape[0]), tolerance)
            for layer in layers[threshold:]:
                state = advance(state, layer, implementation)
            values = state.materialize()
        return Activations(values, probe(values, max(values.shape[1], 1), layers[-1].upper))

    def refuse(acts: Any) -> Any:
        raise TypeError(
            "js.bounded.converged has no derivative: images share results. "
            "Differentiate js.bounded.network of the same layers"
        )

    run.defvjp(refuse, lambda saved, g: refuse(g))

    def call(acts: Any) -> Activations:
        values = check_values(acts.values if isinstance(acts, Activations) else acts)
        if values.shape[1] != layers[0].n_in:
            raise ValueError(f"acts has {values.shape[1]} columns; layer 0 takes {layers[0].n_in}")
        return run(acts)

    return call
