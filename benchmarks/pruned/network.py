"""A whole pruned network, ResNet-50 of examples/models/pruned, against the dense one: through jit,
batch 1 and 8, float32. A second line times its 53 convolutions alone, each on an input of its own.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/network.py [--batch 1 8] [--sparsity 0.9]
                                           [--size 224] [--samples 5] [--out FILE.md]
                                           [--precision highest] [--variant windows] [--awake]

Patterns are those of the Deep Learning Matrix Collection where JAXSPARSE_DATA is set, random ones
elsewhere. Exit status 1 when an output was wrong.
"""

import argparse
import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sides import Chain, Row, awake, compare, keep_freed_memory, report

import jaxsparse as js

SETS = 3
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from models.pruned.graph import Graph, Node, evaluate, ours, xla  # noqa: E402
from models.pruned.networks import dlmc, resnet50  # noqa: E402


def sparse(
    variant: str | None,
    node: Node,
    x: jax.Array,
    weight: Any,
    bias: jax.Array,
    precision: str | None = None,
) -> jax.Array:
    """Ours, in the executor `variant` where one is named."""
    with js.config(variant=variant) if variant else contextlib.nullcontext():
        return ours(node, x, weight, bias, precision)


def inputs_of(graph: Graph, weights: Any, x: jax.Array) -> list[tuple[int, ...]]:
    """The shape of each convolution's input, in the order in which the network runs them."""
    shapes: list[tuple[int, ...]] = []

    def record(node: Node, x: jax.Array, weight: Any, bias: jax.Array) -> jax.Array:
        if node.op == "conv":
            shapes.append(x.shape)
        return xla(node, x, weight, bias)

    jax.eval_shape(lambda x: evaluate(graph, weights, {"x": x}, record), x)
    return shapes


def alone(graph: Graph, multiply: Any, weights: Any, *xs: jax.Array) -> list[jax.Array]:
    """Every convolution's result, each of an input of its own."""
    nodes = [node for node in graph.nodes if node.op == "conv"]
    return [multiply(node, x, *weights[node.output]) for node, x in zip(nodes, xs, strict=True)]


def rows(batch: int, given: argparse.Namespace) -> tuple[list[Row], str]:
    """The network, and its convolutions each on an input of its own."""
    graph, found = resnet50(given.sparsity, given.size), {}
    for name, layer in graph.layers.items():
        kind = "matmul" if layer.kernel.ndim == 2 else "conv"
        found[name] = js.pruned.inspect(layer.kernel, kind=kind), jnp.asarray(layer.bias)
    full = {name: (plan.to_dense(), bias) for name, (plan, bias) in found.items()}
    theirs = functools.partial(xla, precision=given.precision)
    mine = functools.partial(sparse, given.variant, precision=given.precision)
    rng = np.random.default_rng(0)
    shape = (batch, given.size, given.size, 3)
    inputs = [(jnp.asarray(rng.standard_normal(shape, np.float32)),) for _ in range(SETS)]
    forms = {"XLA": (full, theirs), "pruned": (found, mine)}
    calls = {
        name: lambda x, form=form: evaluate(graph, form[0], {"x": x}, form[1])
        for name, form in forms.items()
    }
    wants = [np.asarray(jax.jit(calls["XLA"])(x)[0], np.float64) for (x,) in inputs]
    chains = [Chain(name, call, inputs, wants, calls=3) for name, call in calls.items()]
    took = compare(f"network, batch {batch}", chains, given.samples)
    shapes = inputs_of(graph, full, inputs[0][0])
    each = [
        tuple(jnp.asarray(rng.standard_normal(s, np.float32)) for s in shapes) for _ in range(2)
    ]
    calls = {
        name: functools.partial(alone, graph, multiply, weights)
        for name, (weights, multiply) in forms.items()
    }
    wanted = [[np.asarray(y) for y in jax.jit(calls["XLA"])(*xs)] for xs in each]
    chains = [Chain(name, call, each, wanted, calls=3) for name, call in calls.items()]
    layer = compare(f"{len(shapes)} convolutions, batch {batch}", chains, given.samples)
    kept = sum(plan.pattern.entries for plan, _ in found.values())
    share = 1 - kept / sum(each.kernel.size for each in graph.layers.values())
    where = "random patterns" if dlmc(given.sparsity)[1] is None else "the collection's patterns"
    return [took, layer], f"{len(found)} layers, {100 * share:.1f} % pruned, {where}"


def main() -> int:
    """Every batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--precision", help="of both sides, as in jax.lax")
    parser.add_argument("--variant", help="the executor that every pruned layer must take")
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    keep_freed_memory()
    found, notes = [], []
    for batch in given.batch:
        with awake(given.awake):
            more, note = rows(batch, given)
        found += more
        for row in more:
            for side in row.samples:
                print(*row.cells(side), sep=" | ", flush=True)
        notes = [note]
    command = " ".join(["python", *sys.argv])
    return report("ResNet-50-shaped pruned network, float32", found, command, given.out, notes)


if __name__ == "__main__":
    sys.exit(main())
