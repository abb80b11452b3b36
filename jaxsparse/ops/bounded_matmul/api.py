"""`bounded_matmul`: the public function. Checks at trace time, then runs one layer on the platform
of the call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.layer import Layer
from jaxsparse.core.batching import entries, fold, loop_over, unfold
from jaxsparse.core.checks import check_bool
from jaxsparse.core.debugging import debugs_nans
from jaxsparse.core.differentiable import Fact, differentiable, tangent_of
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Dataflow
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import (
    Implementation,
    Rule,
    check_sharding,
    dispatch,
    lift,
    over_explicit,
    partitioned,
)
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.ops.bounded_matmul import run as bounded_run
from jaxsparse.ops.bounded_matmul.centroids import CENTROIDS, advance, gather_centroids
from jaxsparse.recorder import MIXED, Recorder, choose_segment, probe
from jaxsparse.recorder.types import check_recorder, segment_count
from jaxsparse.reference import bounded_matmul as reference
from jaxsparse.select.config import settings
from jaxsparse.select.explain import Counted
from jaxsparse.select.explain import record as note_call
from jaxsparse.select.work import result, work

DATAFLOWS = ("row", "slab", "column", "converged")


@dataclasses.dataclass(frozen=True)
class Params:
    """What is static about one call."""

    dataflow: str | None
    record: bool
    segment: int
    implementation: Implementation


@takes_variables
def bounded_matmul(
    acts: Activations | Float[ArrayLike, "batch n_in"],
    layer: Layer,
    *,
    dataflow: Dataflow | None = None,
    record: bool = True,
    segment: int | None = None,
    implementation: Implementation = None,
) -> Activations:
    """One saturated layer: y = min(max(x W + b, 0), upper), and the recorder of y.

    The recorder holds a code for each segment of a row that is all zero or all at the bound. Codes
    are exact for any weights: set and cleared at every layer, for every segment. Values that a set
    code stands for are neither read nor written; rows that the layer's proofs decide are not
    computed.

    Differentiable in the values, and in the layer's weights and bias (`Layer.with_values`): the
    derivative of min(max(., 0), upper) is 1 inside the bounds and 0 at and outside of them. What an
    input's code stands for is a constant. The backward pass is plain jax.numpy.

    Args:
        acts: `Activations`, or float32[batch, n_in] of which nothing is known.
        layer: from `js.bounded.inspect` (or an entry of `js.bounded.stack` inside a scan).
        dataflow: how a GPU goes through the work, with equal results: "row" (a block per input
            row), "slab" (a block per row and slab of outputs), "column" (blocks of images x
            neurons, decided rows pruned), "converged" (images equal to one of a few among them are
            not computed; `js.bounded.converged` is the whole stack, with threshold and tolerance).
            None: "row" where the layer has few entries for each input, else "column"; with few
            images the work is split into more blocks. The CPU kernel has one way, vectorised over
            images, for all of them. Where a GPU has no room for the segments (more than 48,000 in a
            row for "row", of more than 390,000 outputs for "column"), "slab" runs.
        record: False writes every value and sets no code.
        segment: elements that one code stands for; None chooses by `js.recorder.choose_segment`.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        Activations of float32[batch, n_out]: call `.materialize()` to read the values; `.values`
        is undefined where a code is set.

    Raises:
        TypeError, ValueError: for a wrong type, rank, width or option, naming the argument.
    """
    if not isinstance(layer, Layer):
        raise TypeError(
            f"layer must be a js.bounded.Layer, not {type(layer).__name__}: see js.bounded.inspect"
        )
    if len(layer.starts.shape) != 1:
        raise ValueError("layer is a stack of layers: scan over it, or take one entry")
    known = isinstance(acts, Activations)
    if is_symbolic(acts):
        part: Any = functools.partial(
            bounded_matmul,
            layer=layer,
            dataflow=dataflow,
            record=record,
            segment=segment,
            implementation=implementation,
        )
        return in_pieces(part, {"acts": acts}, 64, rest="a layer has one number of inputs")
    values = check_values(acts.values if known else acts)
    if values.shape[1] != layer.n_in:
        raise ValueError(
            f"acts has {values.shape[1]} columns; the layer takes n_in={layer.n_in} "
            "(js.bounded.inspect takes a weight [n_in, n_out])"
        )
    if known:
        recorder = acts.recorder
        check_recorder("acts", recorder, values.shape)
    else:  # a handler needs no codes to be told so
        nothing = jnp.zeros((values.shape[0], 0), jnp.uint8)
        recorder = Recorder(nothing, max(values.shape[1], 1), 0.0)
    if dataflow is not None and dataflow not in DATAFLOWS:
        raise ValueError(f"dataflow={dataflow!r} is not one of {', '.join(map(repr, DATAFLOWS))}")
    if segment is None:
        segment = choose_segment(layer.n_out, dataflow=dataflow or "column")
    if isinstance(segment, bool) or not isinstance(segment, (int, np.integer)) or segment < 1:
        raise ValueError(f"segment={segment!r}; it takes a positive int")
    record = check_bool("record", record)
    if not record:
        segment = layer.n_out
    segment = max(min(int(segment), layer.n_out), 1)
    implementations = plan("bounded_matmul", implementation, NAMES)
    params = Params(dataflow, record, segment, implementation_key(implementation))
    note_call(
        "bounded_matmul",
        f"float32{list(values.shape)} -> {[values.shape[0], layer.n_out]}",
        implementations,
        lambda name: bounded_run.describe(params, name, values.shape[0], layer),
        _segments(recorder, values) if settings().explain is not None else None,
        "input segments",
        lambda: work(
            values.shape[0] * layer.weights.shape[0],
            values,
            layer,
            result((values.shape[0], layer.n_out), np.float32),
        ),
    )
    whole = debugs_nans()
    arrays = lift(Activations(values, recorder), jax.tree.map(jnp.asarray, layer))
    return _run(params, whole, *arrays)


def _segments(recorder: Recorder, values: jax.Array) -> Counted:
    """How many segments of the input there are, and how many of them count."""
    rows, codes = values.shape[0] * min(values.shape[1], 1), recorder.codes
    if codes.shape[1] == 0:
        return Counted(rows, jnp.asarray(rows))
    return Counted(codes.size, (codes == MIXED).sum())


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(p: Params, whole: bool, acts: Activations, layer: Layer) -> Activations:
    out = _differentiable(p, acts, layer)
    return out.filled() if whole else out


@differentiable()
def _differentiable(p: Params, acts: Activations, layer: Layer) -> Activations:
    if p.dataflow == "converged" and acts.values.shape[0]:
        return _converged(p, acts, layer)
    return _batched(p)(acts, layer)


def _forward(p: Params, acts: Activations, layer: Layer) -> tuple[Activations, Any]:
    out = _differentiable(p, acts, layer)
    return out, (acts, layer, Fact(dataclasses.replace(out.recorder, codes=None)))


def _backward(p: Params, saved: tuple[Any, ...], g: Activations) -> tuple[Any, Any]:
    """Through the layer in plain jax.numpy; what a code stands for is a constant."""
    acts, layer, _ = saved
    arrays, tree = jax.tree.flatten((acts.recorder.codes, layer))

    def back(x: jax.Array, g: jax.Array, codes: jax.Array, *layers: jax.Array) -> tuple[Any, ...]:
        codes, layer = jax.tree.unflatten(tree, (codes, *layers))

        given = Activations(x, dataclasses.replace(acts.recorder, codes=codes))
        values = functools.partial(_values, given, layer)
        return jax.vjp(values, x, layer.weights, layer.bias)[1](g)

    of_layer = "." + " ." * (layer.weights.ndim - 1)
    results = ("b .", of_layer, ".")
    rule = split_rows("bounded_matmul", ("b .", "b .", "b ."), arrays[1:], results)
    split = over_explicit(rule, back, lambda _, *given: back(*given))
    x, weights, bias = split(acts.values, g.values, *arrays)
    recorder = dataclasses.replace(acts.recorder, codes=None)
    nothing: Any = dict.fromkeys(("starts", "indices", "expand"))
    found = dataclasses.replace(layer, **{**nothing, "weights": weights, "bias": bias})
    return Activations(x, recorder), found


def _tangent(p: Params, saved: tuple[Any, ...], tangents: Any) -> Activations:
    acts, layer, recorder = saved
    dacts, dlayer = tangents
    moved = (
        None if dacts is None else dacts.values,
        *((None, None) if dlayer is None else (dlayer.weights, dlayer.bias)),
    )
    if all(v is None for v in moved):
        return Activations(cast(Any, None), recorder.value)
    dx, *of_layer = moved
    leaves, tree = jax.tree.flatten((of_layer, layer))

    def along(x: jax.Array, codes: jax.Array, dx: jax.Array | None, *leaves: Any) -> jax.Array:
        of_layer, layer = jax.tree.unflatten(tree, leaves)
        given = Activations(x, dataclasses.replace(acts.recorder, codes=codes))
        values = functools.partial(_values, given, layer)
        return tangent_of(values, (x, layer.weights, layer.bias), (dx, *of_layer))

    rule = split_rows("bounded_matmul", ("b .", "b .", "b ."), leaves, ("b .",))
    split = over_explicit(rule, along, lambda _, *given: along(*given))
    found = split(acts.values, acts.recorder.codes, dx, *leaves)
    return Activations(found, recorder.value)


def _values(
    acts: Activations, layer: Layer, x: jax.Array, weights: jax.Array, bias: jax.Array
) -> jax.Array:
    """The layer in plain jax.numpy, of other values, weights and bias."""
    whole = Activations(x, acts.recorder).materialize()
    return _plain(whole, dataclasses.replace(layer, weights=weights, bias=bias))


_differentiable.defrules(_forward, _tangent, _backward)


def _converged(p: Params, acts: Activations, layer: Layer) -> Activations:
    """One layer on centroids and residues, exact. Codes are those of the whole result."""
    check_sharding(acts.values)
    values = acts.materialize()
    state = gather_centroids(values, min(CENTROIDS, values.shape[0]), 0.0)
    run = functools.partial(bounded_matmul, dataflow="column", implementation=p.implementation)
    y = advance(run, state, layer, record=False).materialize()
    return _recorded(p, y, layer.upper)


def _batched(p: Params) -> Any:
    """The op of (Activations, Layer) with its vmap rule: images fold into the batch, stacked layers
    loop."""

    @custom_vmap
    def run(acts: Activations, layer: Layer):
        if 0 in (acts.values.shape[0], layer.n_out):
            return _reference(p, acts, layer)
        alone = dispatch(
            "bounded_matmul",
            p.implementation,
            cuda=functools.partial(bounded_run.call, p, "cuda"),
            cpu=functools.partial(bounded_run.call, p, "cpu"),
            reference=functools.partial(_reference, p),
        )
        arrays, tree = jax.tree.flatten(layer)
        recorder = acts.recorder

        def pair(values: jax.Array, codes: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
            given = Activations(values, dataclasses.replace(recorder, codes=codes))
            found = alone(given, jax.tree.unflatten(tree, arrays))
            return found.values, found.recorder.codes

        rule = split_rows("bounded_matmul", ("b .", "b ."), arrays, ("b .", "b ."))
        split = partitioned(rule, pair, lambda _, *given: pair(*given))
        values, codes = split(acts.values, recorder.codes, *arrays)
        return Activations(values, Recorder(codes, p.segment, layer.upper))

    @run.def_vmap
    def rule(
        axis_size: int, in_batched: tuple[Activations, Layer], acts: Activations, layer: Layer
    ):
        acts_batched, layer_batched = in_batched
        if any(jax.tree.leaves(layer_batched)):
            out = loop_over(_batched(p), (acts, layer), in_batched)
        else:
            folded = jax.tree.map(lambda v, b: fold(v, b, axis_size), acts, acts_batched)
            each = entries(acts.values, bool(acts_batched.values))
            out = jax.tree.map(lambda v: unfold(v, axis_size, each), _batched(p)(folded, layer))
        return out, jax.tree.map(lambda _: True, out)

    return run


def split_rows(
    op: str, rows: tuple[str, ...], arrays: Sequence[Any], results: tuple[str, ...]
) -> Rule:
    """How a mesh splits a call of operands `rows`, then the `arrays` of layers: by the images b."""
    whole = tuple(" ".join("." * np.ndim(v)) for v in arrays)
    names = (*["acts"] * len(rows), *["layer"] * len(arrays))
    why = {".": "every image reads all of the layer: a mesh splits the first axis of acts only"}
    return Rule(op, (*rows, *whole), results, ("b",), names, why=why)


def _reference(p: Params, acts: Activations, layer: Layer) -> Activations:
    return _recorded(p, _plain(acts.materialize(), layer), layer.upper)


def _plain(x: jax.Array, layer: Layer) -> jax.Array:
    arrays = layer.starts, layer.indices, layer.weights, layer.bias, layer.expand
    ordered = settings().deterministic
    return reference.bounded_matmul(x, *arrays, upper=layer.upper, ordered=ordered)


def _recorded(p: Params, y: jax.Array, upper: float) -> Activations:
    if p.record:
        return Activations(y, probe(y, p.segment, upper))
    codes = jnp.zeros((y.shape[0], segment_count(y.shape[1], p.segment)), jnp.uint8)
    y, codes = lift(y, codes)  # as the handlers' results do, codes vary over a mesh with the values
    return Activations(y, Recorder(codes, p.segment, upper))
