"""The ways of running one of the challenge's networks, and what they share."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxsparse import bounded, recorder
from jaxsparse.bench.challenge.deep import deep_network
from jaxsparse.bounded.bundles import PANEL_LAYERS
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.pack import chain
from jaxsparse.bounded.radixnet import UPPER, radixnet
from jaxsparse.core.types import Dataflow
from jaxsparse.ops import bounded_matmul
from jaxsparse.ops.bounded_matmul.centroids import CENTROIDS, advance, gather_centroids
from jaxsparse.ops.bounded_network.api import assemble

SUFFIXES = ("", "+recorder", "+proofs")
DATAFLOWS: tuple[Dataflow, ...] = ("row", "slab", "column", "converged")
WAYS = (
    "persistent",
    "unfolded",
    *(dataflow + suffix for dataflow in DATAFLOWS for suffix in SUFFIXES),
)
THRESHOLD = 30

#: A function to jit, and what it takes beside the images.
Call = tuple[Callable[..., Any], Any]


class Networks:
    """Networks of one width, of any depth up to the deepest: built once, on demand."""

    def __init__(self, neurons: int, deepest: int):
        self.neurons, self.deepest = neurons, deepest

    @functools.cached_property
    def folded(self) -> list[Layer]:
        """The layers chained on folded state."""
        return chain(radixnet(self.neurons, self.deepest), True)

    @functools.cached_property
    def head(self) -> list[Layer]:
        """The first layers with every output computed, chained."""
        many = min(self.deepest, PANEL_LAYERS)
        return chain(radixnet(self.neurons, many, fold=False), False)

    def single(self, depth: int) -> list[Layer]:
        """The layers by themselves, every output computed."""
        return list(radixnet(self.neurons, depth, fold=False))

    def call(self, way: str, depth: int) -> Call:
        """A way of running the first `depth` layers."""
        if way == "persistent":
            return _call_network, assemble(self.folded[:depth])
        if way == "unfolded":
            return _call_network, deep_network(self.head, self.neurons, depth)
        name, _, suffix = way.partition("+")
        dataflow = cast(Dataflow, name)
        layers = self.single(depth)
        if suffix != "proofs":
            facts = {"zero_stays": False, "saturates_from": float("inf")}
            layers = [dataclasses.replace(layer, **facts) for layer in layers]
        if dataflow == "converged":
            return converge(layers, bool(suffix))
        return layer_by_layer(layers, dataflow, bool(suffix))


def _call_network(net: Any, x: jax.Array) -> Any:
    return net(x)


def layer_by_layer(layers: list[Layer], dataflow: Dataflow, record: bool) -> Call:
    """The stack in one scan."""

    def step(acts: Any, layer: Layer) -> tuple[Any, None]:
        return bounded_matmul(acts, layer, dataflow=dataflow, record=record), None

    def run(layers: tuple[Layer, Layer], x: jax.Array) -> Any:
        return jax.lax.scan(step, step(x, layers[0])[0], layers[1])[0]

    return run, jax.tree.map(jnp.asarray, (layers[0], bounded.stack(layers[1:])))


def converge(layers: list[Layer], record: bool) -> Call:
    """Layer by layer up to the threshold, then centroids and residues, both in scans."""
    parts = layers[0], bounded.stack(layers[1:THRESHOLD]), bounded.stack(layers[THRESHOLD:])
    one = functools.partial(bounded_matmul, dataflow="column")

    def step(acts: Any, layer: Layer) -> tuple[Any, None]:
        return one(acts, layer, record=record), None

    def settle(state: Any, layer: Layer) -> tuple[Any, None]:
        return advance(one, state, layer, record=record), None

    def run(parts: tuple[Layer, Layer, Layer], x: jax.Array) -> Any:
        acts, _ = jax.lax.scan(step, step(x, parts[0])[0], parts[1])
        state = gather_centroids(acts.materialize(), min(CENTROIDS, x.shape[0]), 0.0)
        state, _ = jax.lax.scan(settle, state, parts[2])
        y = state.materialize()
        return bounded.Activations(y, recorder.probe(y, y.shape[1], UPPER))

    return run, jax.tree.map(jnp.asarray, parts)


def reference(x: np.ndarray, weights: Iterator[Any], bias: float) -> tuple[np.ndarray, bool]:
    """The categories in float64: scipy, layer by layer, decided rows set aside. Rows j and
    j + neurons / 16 of a weight are the same, so sixteenths are computed.

    Returns:
        int[alive], and whether every row was decided before the last layer: then deeper networks
        of the same recipe have the same categories.
    """
    rows, alive, y = np.arange(len(x)), [], x.astype(np.float64)
    bias = float(np.float32(bias))
    for weight in weights:
        distinct = weight[: weight.shape[0] // 16].astype(np.float64)
        z = np.clip((distinct @ y.T).T + bias, 0.0, UPPER)
        full, zero = (z == UPPER).all(1), (z == 0).all(1)
        alive.append(rows[full])
        open_ = ~(full | zero)
        y, rows = np.tile(z[open_], (1, 16)), rows[open_]
        if not len(rows):
            return np.sort(np.concatenate(alive)), True
    return np.sort(np.concatenate([*alive, rows])), False


@dataclasses.dataclass(frozen=True)
class Overhead:
    """What a recorder costs where no segment saturates."""

    neurons: int
    images: int
    dataflow: str
    milliseconds: float
    recorded: float

    @property
    def share(self) -> float:
        """Of the time without it."""
        return self.recorded / self.milliseconds - 1


def overheads(
    neurons: int, images: int, time: Callable[[Callable[[], Any]], float]
) -> Iterator[Overhead]:
    """Every dataflow on one layer of 32 random signed entries an output, whose results lie inside
    the bounds: nothing is cleared, and every value is written, on both sides."""
    rng = np.random.default_rng(0)
    indices = rng.integers(0, neurons, (neurons, 32)).ravel()
    pointers = np.arange(0, indices.size + 1, 32)
    drawn = rng.standard_normal(indices.size).astype(np.float32)
    weight = sp.csr_matrix((drawn, indices, pointers), (neurons, neurons))
    layer = jax.tree.map(jnp.asarray, bounded.inspect(weight.T, 32.0, 64.0))
    x = jax.random.uniform(jax.random.key(0), (images, neurons))
    for dataflow in DATAFLOWS:

        @functools.partial(jax.jit, static_argnums=2)
        def run(x: jax.Array, layer: Layer, record: bool, dataflow: Dataflow = dataflow) -> Any:
            return bounded_matmul(x, layer, dataflow=dataflow, record=record)

        plain, recorded = [], []
        for _ in range(3):  # in turns, so that a drift hits both
            plain.append(time(lambda run=run: run(x, layer, False)))
            recorded.append(time(lambda run=run: run(x, layer, True)))
        yield Overhead(neurons, images, dataflow, min(plain), min(recorded))
