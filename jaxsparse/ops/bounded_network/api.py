"""`network`: a whole stack of saturated layers as one call, weights packed at inspection, folded
from layer to layer.

Outputs with identical rows are one value, so the state that goes from layer to layer holds distinct
values only: the next layer's columns of equal inputs are summed. Rows with the same inputs are
computed together (`jaxsparse/bounded/bundles.py`). A row whose state is proven never to change
again (every remaining layer keeps zero rows zero, or rows at the bound at theirs) retires: it is
neither computed nor written any more.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.pack import chain, pack
from jaxsparse.bounded.packed import DATA, Network
from jaxsparse.core.batching import entries, loop_over, unfold
from jaxsparse.core.batching import fold as fold_axis
from jaxsparse.core.checks import check_bool
from jaxsparse.core.debugging import debugs_nans
from jaxsparse.core.differentiable import Fact, differentiable, tangent_of
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, dispatch, lift, over_explicit, partitioned
from jaxsparse.ffi.platform import NAMES, named, plan
from jaxsparse.ops.bounded_matmul import native, run
from jaxsparse.ops.bounded_matmul.api import split_rows
from jaxsparse.recorder import Recorder, probe
from jaxsparse.reference import bounded_network as reference
from jaxsparse.select.config import settings
from jaxsparse.select.explain import record
from jaxsparse.select.work import result, work


@takes_variables
def network(
    layers: Iterable[Layer],
    *,
    fold: bool = True,
    retire: bool = True,
    implementation: Implementation = None,
) -> Network:
    """Pack a stack of layers for one call.

    Args:
        layers: `Layer`s, each as wide as the result of the one before it; taken one at a time, so
            a generator need not hold all of them in memory.
        fold: carry distinct values only. False computes every output (inspect the layers with
            fold=False as well).
        retire: stop computing rows that are proven decided. False computes every row to the end.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A Network, callable with `Activations` or float32[batch, n_in].

    Raises:
        TypeError: when `layers` is not a sequence (pass one layer as [layer]), an entry not a
            Layer, `fold` or `retire` not a bool, or `implementation` neither a name nor a sequence.
        ValueError: without layers, for widths that do not fit, or an unknown implementation.
    """
    fold, retire = check_bool("fold", fold), check_bool("retire", retire)
    return assemble(chain(layers, fold), retire, named(implementation))


def assemble(chained: list[Layer], retire: bool = True, name: Implementation = None) -> Network:
    """The Network of layers from `chain`, or of the first few of them."""
    packed = pack(chained, retire)
    arrays = jax.tree.map(jnp.asarray, packed.arrays)
    return Network(**arrays, **packed.facts, implementation=name)


def apply(net: Network, acts: Activations | Float[ArrayLike, "batch n_in"]) -> Activations:
    """What calling a Network does.

    Raises:
        TypeError, ValueError: as `Network.__call__` does.
    """
    if len(net.table.shape) != 2:
        raise ValueError("the network is a stack of networks: take one entry of its arrays")
    if is_symbolic(acts):
        why = "the first layer has one number of inputs"
        found: Activations = in_pieces(functools.partial(apply, net), {"acts": acts}, 64, rest=why)
        return found
    x = acts.materialize() if isinstance(acts, Activations) else acts
    x = check_values(x)
    if x.shape[1] != net.n_in:
        raise ValueError(
            f"acts has {x.shape[1]} columns; the network takes {net.n_in} "
            "(js.bounded.inspect takes weights [n_in, n_out])"
        )
    implementations = plan("bounded_network", net.implementation, NAMES)
    shapes = f"float32{list(x.shape)}, {net.depth} layers -> {[x.shape[0], net.n_out]}"
    record(
        "bounded_network",
        shapes,
        implementations,
        lambda name: run.describe_network(net, name, x.shape[0]),
        None,
        work=lambda: work(
            x.shape[0] * net.weights.shape[0],
            x,
            net,
            result((x.shape[0], net.n_out), np.float32),
        ),
    )
    whole = debugs_nans()
    return _run(whole, *lift(x, jax.tree.map(jnp.asarray, net)))


@functools.partial(jax.jit, static_argnums=0)
def _run(whole: bool, x: jax.Array, net: Network) -> Activations:
    out = _differentiable(x, net)
    return out.filled() if whole else out


@differentiable(static=0)
def _differentiable(x: jax.Array, net: Network) -> Activations:
    return _rows(x, net)


def _forward(x: jax.Array, net: Network) -> tuple[Activations, Any]:
    out = _differentiable(x, net)
    return out, (x, net, Fact(dataclasses.replace(out.recorder, codes=None)))


def _backward(saved: tuple[Any, ...], g: Activations) -> tuple[jax.Array, Network]:
    x, net, _ = saved
    arrays, tree = jax.tree.flatten(net)

    def back(x: jax.Array, g: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        net = jax.tree.unflatten(tree, arrays)
        return jax.vjp(functools.partial(_values, net), x, net.weights, net.bias)[1](g)

    rule = split_rows("bounded_network", ("b .", "b ."), arrays, ("b .", ".", "."))
    split = over_explicit(rule, back, lambda _, *given: back(*given))
    dx, weights, bias = split(x, g.values, *arrays)
    found = {"weights": weights, "bias": bias}
    nothing = dict.fromkeys(DATA)
    return dx, dataclasses.replace(net, **{**nothing, **found})


def _tangent(saved: tuple[Any, ...], tangents: Any) -> Activations:
    x, net, recorder = saved
    dx, dnet = tangents
    moved = dx, *((None, None) if dnet is None else (dnet.weights, dnet.bias))
    if all(v is None for v in moved):
        return Activations(cast(Any, None), recorder.value)
    leaves, tree = jax.tree.flatten((moved, net))

    def along(x: jax.Array, *leaves: jax.Array) -> jax.Array:
        moved, net = jax.tree.unflatten(tree, leaves)
        return tangent_of(functools.partial(_values, net), (x, net.weights, net.bias), moved)

    rows = ("b .",) if dx is None else ("b .", "b .")
    rule = split_rows("bounded_network", rows, leaves[len(rows) - 1 :], ("b .",))
    found = over_explicit(rule, along, lambda _, *given: along(*given))(x, *leaves)
    return Activations(found, recorder.value)


def _values(net: Network, x: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    """The layers in plain jax.numpy, of other weights and biases."""
    net = dataclasses.replace(net, weights=weights, bias=bias)
    return reference.bounded_network(x, net, ordered=settings().deterministic)


_differentiable.defrules(_forward, _tangent, _backward)


@custom_vmap
def _rows(x: jax.Array, net: Network) -> Activations:
    if 0 in (x.shape[0], net.n_out):
        return native.empty(net, x.shape[0])
    alone = dispatch(
        "bounded_network",
        net.implementation,
        cuda=lambda x, net: run.call_network(net, "cuda", x),
        cpu=lambda x, net: run.call_network(net, "cpu", x),
        reference=_reference,
    )
    arrays, tree = jax.tree.flatten(net)

    def pair(x: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = alone(x, jax.tree.unflatten(tree, arrays))
        return found.values, found.recorder.codes

    rule = split_rows("bounded_network", ("b .",), arrays, ("b .", "b ."))
    values, codes = partitioned(rule, pair, lambda _, *given: pair(*given))(x, *arrays)
    return Activations(values, Recorder(codes, max(net.n_out, 1), net.upper))


@_rows.def_vmap
def _rows_rule(axis_size: int, in_batched: Any, x: jax.Array, net: Network) -> Any:
    x_batched, net_batched = in_batched
    if any(jax.tree.leaves(net_batched)):
        out = loop_over(_rows, (x, net), in_batched)
    else:
        folded = _rows(fold_axis(x, x_batched, axis_size), net)
        out = jax.tree.map(lambda v: unfold(v, axis_size, entries(x, x_batched)), folded)
    return out, jax.tree.map(lambda _: True, out)


def _reference(x: jax.Array, net: Network) -> Activations:
    y = reference.bounded_network(x, net, ordered=settings().deterministic)
    return Activations(y, probe(y, max(net.n_out, 1), net.upper))
