"""Images that have become alike are computed once: after a threshold layer, a few centroids and
what differs from them.

Deep in such a network most images end in one of a few states. Some of them become centroids; an
image whose residue from its centroid is empty is neither read nor computed again: it has its
centroid's results. The others are computed in full, and join when they have converged. This is
exact at tolerance 0: only equal rows share. The scheme is SNICIT's (Jiang, Huang, Yu, Ho:
Accelerating Sparse Neural Network Inference via Compression at Inference Time on GPU, 2023);
residues are kept per image, not per element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.pack import checked
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, check_sharding
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.ops.bounded_matmul.api import bounded_matmul
from jaxsparse.ops.bounded_matmul.centroids import CENTROIDS, advance, gather_centroids
from jaxsparse.recorder import probe


@takes_variables
def converged(
    layers: Iterable[Layer],
    *,
    threshold: int = 30,
    tolerance: float = 0.0,
    centroids: int = CENTROIDS,
    implementation: Implementation = None,
) -> Callable[[Activations | Float[ArrayLike, "batch n_in"]], Activations]:
    """A stack in the converged dataflow: layer by layer up to the threshold, then centroids and
    residues.

    Args:
        layers: `Layer`s, each as wide as the result of the one before it.
        threshold: the layer after which images become centroids and residues.
        tolerance: elements that differ by no more count as equal; 0 is exact.
        centroids: how many images become one.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A function of `Activations` or float32[batch, n_in] to Activations with one code a row. Call
        it under jit: outside of it every call traces all layers.

    Raises:
        ValueError: without layers, for widths that do not fit, a negative threshold or tolerance,
            or fewer than one centroid.
        TypeError: for another type of these, and when what is returned is differentiated.
            What is returned raises ValueError for images that are sharded over Explicit mesh axes:
            centroids are chosen among all images.
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

    @jax.custom_jvp
    def run(acts: Activations | jax.Array) -> Activations:
        images = acts.shape[0]
        step = functools.partial(bounded_matmul, dataflow="column", implementation=implementation)
        for layer in layers[:threshold] if images else layers:
            acts = step(acts, layer)
        values = acts.materialize() if isinstance(acts, Activations) else jnp.asarray(acts)
        if images and layers[threshold:]:
            state = gather_centroids(values, min(centroids, values.shape[0]), tolerance)
            for layer in layers[threshold:]:
                state = advance(step, state, layer)
            values = state.materialize()
        return Activations(values, probe(values, max(values.shape[1], 1), layers[-1].upper))

    @run.defjvp
    def refuse(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        raise TypeError(
            "js.bounded.converged has no derivative: images share results. "
            "Differentiate js.bounded.network of the same layers"
        )

    def call(acts: Activations | Float[ArrayLike, "batch n_in"]) -> Activations:
        values = check_values(acts.values if isinstance(acts, Activations) else acts)
        check_sharding(values)
        if values.shape[1] != layers[0].n_in:
            raise ValueError(f"acts has {values.shape[1]} columns; layer 0 takes {layers[0].n_in}")
        return run(acts)

    return call
