"""Times of each node of a network alone, by kind, beside the time of the whole network."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from models.pruned.graph import OPERATORS, Graph, Layer, Multiply, Node, evaluate

#: A node is timed in a loop of about SECONDS, of LEAST to MOST turns: the fastest of REPEATS.
SECONDS, LEAST, MOST, REPEATS = 0.005, 4, 1000, 7


class Span(NamedTuple):
    """Nodes of one kind: how many, and milliseconds of all of them by form."""

    kind: str
    nodes: int
    times: dict[str, float]


#: The prefix of the kinds of nodes that multiply by weights.
LAYER = "layer: "
REMAINDER = "whole network less its nodes"
COLUMNS = ["kind of node", "nodes", "runs through", "XLA\n[ms]", "ours\n[ms]"]
LEGEND = (
    "Each node alone, in a loop inside of one program; the fastest of seven. Alone, a node finds "
    "its weights in a cache; in the whole network XLA merges neighbours, and there are gaps "
    "between them. The remainder is all of that, and may be negative."
)


def kind_of(node: Node, layer: Layer | None) -> str:
    """What a row of the table calls the node."""
    if layer is None:
        return node.op
    if node.op == "matmul":
        return f"{LAYER}matmul"
    window, groups = layer.kernel.shape[0], node.static["groups"]
    grouped = "depthwise " if groups > 1 else ""
    return f"{LAYER}{grouped}conv {window}x{window}"


def alone(run: Callable[..., jax.Array], args: Sequence[jax.Array]) -> float:
    """Milliseconds of `run(*args)` in a loop within a compiled program. Every turn reads an element
    of the last turn's result, so that XLA leaves none out.
    """

    @jax.jit
    def loop(turns: int, *args: jax.Array) -> jax.Array:
        def turn(_: Any, x: jax.Array) -> jax.Array:
            y = lax.optimization_barrier(run(x, *args[1:]))
            first = (0,) * x.ndim
            changed = x[first] + 0 * y[(0,) * y.ndim]
            return x.at[first].set(changed)

        return lax.fori_loop(0, turns, turn, args[0])

    def seconds(turns: int) -> float:
        jax.block_until_ready(loop(turns, *args))
        found = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            jax.block_until_ready(loop(turns, *args))
            found.append(time.perf_counter() - start)
        return min(found)

    turns = max(LEAST, min(MOST, round(SECONDS * LEAST / max(seconds(LEAST), 1e-7))))
    return 1e3 * seconds(turns) / turns


def spans(
    graph: Graph,
    inputs: Mapping[str, jax.Array],
    forms: Mapping[str, tuple[Mapping[str, tuple[Any, jax.Array]], Multiply]],
) -> list[Span]:
    """The kinds of node in the order of the graph; `forms`: (weights, how they multiply) by name.

    A node that is not a layer is XLA's in every form, and is measured once.
    """
    names = tuple(node.output for node in graph.nodes)
    whole = graph._replace(outputs=names)
    weights, multiply = next(iter(forms.values()))
    made = jax.jit(lambda xs: evaluate(whole, weights, xs, multiply))(inputs)
    constants = {k: jnp.asarray(v, made[0].dtype) for k, v in graph.constants.items()}
    values = dict(inputs) | constants | dict(zip(names, made, strict=True))
    measured: dict[Any, dict[str, float]] = {}
    kinds: dict[str, list[dict[str, float]]] = {}
    for node in graph.nodes:
        args = [values[name] for name in node.inputs]
        layer = graph.layers.get(node.output)
        if layer is None:
            key = node.op, str(node.static), *(x.shape for x in args)
            if key not in measured:
                one = alone(functools.partial(OPERATORS[node.op], node.static), args)
                measured[key] = dict.fromkeys(forms, one)
            times = measured[key]
        else:
            times = {form: _layer(node, args[0], *forms[form]) for form in forms}
        kinds.setdefault(kind_of(node, layer), []).append(times)
    return [
        Span(kind, len(found), {form: float(np.sum([t[form] for t in found])) for form in forms})
        for kind, found in kinds.items()
    ]


def _layer(
    node: Node,
    x: jax.Array,
    weights: Mapping[str, tuple[Any, jax.Array]],
    multiply: Multiply,
) -> float:
    """Milliseconds of one layer: a dense kernel is an operand, as it is in the whole network."""
    kernel, bias = weights[node.output]
    if isinstance(kernel, jax.Array):
        return alone(lambda x, k: multiply(node, x, k, bias), (x, kernel))
    return alone(lambda x: multiply(node, x, kernel, bias), (x,))


def cells(found: Sequence[Span], whole: Mapping[str, float]) -> list[list[str]]:
    """The rows of the table: the kinds, the remainder, and the `whole` network."""
    forms = list(found[0].times)
    rows = [
        [span.kind, str(span.nodes), "jaxsparse" if span.kind.startswith(LAYER) else "XLA"]
        + [f"{span.times[form]:.3f}" for form in forms]
        for span in found
    ]
    left = [whole[form] - sum(span.times[form] for span in found) for form in forms]
    rows.append([REMAINDER, "", "", *(f"{ms:.3f}" for ms in left)])
    nodes = str(sum(span.nodes for span in found))
    rows.append(["whole network", nodes, "", *(f"{whole[form]:.3f}" for form in forms)])
    return rows
