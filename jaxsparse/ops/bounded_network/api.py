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
from jaxtyping import Array, Float, Float32, Int32, Integer, UInt32

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.layer import Layer, check_values_of
from jaxsparse.bounded.pack import RETIRE_UPPER, RETIRE_ZERO, chain, pack
from jaxsparse.core.batching import entries, loop_over, unfold
from jaxsparse.core.batching import fold as fold_axis
from jaxsparse.core.checks import check_bool, is_traced
from jaxsparse.core.contract import BoundedNetworkRow
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

_DATA = ("table", "starts", "indices", "weights", "bias", "uppers", "expand")
_META = (
    "n_in",
    "n_out",
    "depth",
    "first",
    "widest",
    "upper",
    "decides",
    "bundles",
    "shapes",
    "implementation",
)


@functools.partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A packed stack: a pytree, callable under jit. Pass it as an argument; closed over, its
    weights become constants.

    Differentiable in the images, weights and biases: the derivative of min(max(., 0), upper)
    is 1 inside the bounds and 0 at and outside of them. The backward pass computes the layers again
    in plain jax.numpy. Which rows retire was proven of the weights that were inspected: other ones
    go in through `with_values`, which drops the proofs.

    Attributes:
        table: uint32[depth, 8]: a row a layer; columns: `core.contract.BoundedNetworkRow`.
        starts, indices, weights, bias: the layers' arrays, one after the other; uppers:
            float32[depth].
        expand: int32[n_out], the stored value of each output, or None: in order.
        n_in, n_out, depth, upper: of the whole; first, widest: stored outputs of the first and of
            the widest layer (with bundles the inputs count, too).
        decides: whether some state retires before the last layer.
        bundles: 0, or how far the GPU may go with bundles (`bundled_ways`): 1: some layer's units
            are bundles; 2: the first layers go by panels; 3: and the first of all reads the images
            as they are.
        shapes: (inputs, stored outputs, indices, rows of a unit) of each layer.
    """

    table: UInt32[Array, "depth 8"]
    starts: Int32[Array, "starts"]
    indices: Integer[Array, "indices"]
    weights: Float32[Array, "weights"]
    bias: Float32[Array, "outputs"]
    uppers: Float32[Array, "depth"]
    expand: Int32[Array, "n_out"] | None
    n_in: int
    n_out: int
    depth: int
    first: int
    widest: int
    upper: float
    decides: bool
    bundles: int
    shapes: tuple[tuple[int, int, int, int], ...]
    implementation: Implementation

    @takes_variables
    def __call__(self, acts: Activations | Float[ArrayLike, "batch n_in"]) -> Activations:
        """The stack's result, Activations of float32[batch, n_out] with one code a row: call
        `.materialize()` to read the values.

        Raises:
            TypeError, ValueError: for another dtype or width than the first layer's; for networks
                stacked in one.
        """
        if len(self.table.shape) != 2:
            raise ValueError("the network is a stack of networks: take one entry of its arrays")
        if is_symbolic(acts):
            why = "the first layer has one number of inputs"
            found: Activations = in_pieces(self.__call__, {"acts": acts}, 64, rest=why)
            return found
        x = acts.materialize() if isinstance(acts, Activations) else acts
        x = check_values(x)
        if x.shape[1] != self.n_in:
            raise ValueError(
                f"acts has {x.shape[1]} columns; the network takes {self.n_in} "
                "(js.bounded.inspect takes weights [n_in, n_out])"
            )
        implementations = plan("bounded_network", self.implementation, NAMES)
        shapes = f"float32{list(x.shape)}, {self.depth} layers -> {[x.shape[0], self.n_out]}"
        record(
            "bounded_network",
            shapes,
            implementations,
            lambda name: run.describe_network(self, name, x.shape[0]),
            None,
            work=lambda: work(
                x.shape[0] * self.weights.shape[0],
                x,
                self,
                result((x.shape[0], self.n_out), np.float32),
            ),
        )
        whole = debugs_nans()
        return _run(whole, *lift(x, jax.tree.map(jnp.asarray, self)))

    @takes_variables
    def with_values(
        self,
        weights: Float32[ArrayLike, "weights"],
        bias: Float32[ArrayLike, "outputs"] | None = None,
    ) -> Network:
        """The same pattern with other weights (and biases), and nothing proven of it: every row is
        computed to the end. For training.

        Args:
            weights: float32, in the order of `weights`.
            bias: float32, in the order of `bias`; None keeps the network's.

        Raises:
            TypeError, ValueError: for another dtype or shape.
        """
        bias = self.bias if bias is None else bias
        check_values_of(self, weights=weights, bias=bias)
        table = jnp.asarray(self.table).at[..., :-1, BoundedNetworkRow.RETIRES].set(0)
        facts = {"table": table, "weights": weights, "bias": bias, "decides": False}
        return dataclasses.replace(self, **facts)

    def retires(self) -> dict[str, int]:
        """The first layer after which rows of each decided state retire for good; depth - 1, the
        last layer, where nothing is proven (`decides` is False where neither retires earlier)."""
        flags = np.asarray(self.table)[:, BoundedNetworkRow.RETIRES]
        found = {"zero": flags & RETIRE_ZERO, "upper": flags & RETIRE_UPPER}
        return {k: int(np.argmax(v != 0)) if v.any() else self.depth for k, v in found.items()}

    def __repr__(self) -> str:
        entries = sum(e * rows for _, _, e, rows in self.shapes)
        return (
            f"Network({self.n_in} -> {self.n_out}, {self.depth} layers, "
            f"at most {self.widest} distinct values, {entries} entries"
            f"{' in bundles' if self.bundles else ''}{self._retirement()})"
        )

    def _retirement(self) -> str:
        """For `repr`: nothing where no row retires, or the table is traced, stacked or no array."""
        known = isinstance(self.table, (np.ndarray, jax.Array)) and self.table.ndim == 2
        known = known and self.decides and not is_traced(self)
        return f", retires from layer {self.retires()}" if known else ""


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
        layers: `Layer`s whose widths chain; taken one at a time, so a generator needs no room for
            all.
        fold: carry distinct values only. False computes every output (inspect the layers with
            fold=False as well).
        retire: stop computing rows that are proven decided. False computes every row to the end.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A Network, callable with `Activations` or float32[batch, n_in].

    Raises:
        TypeError: when `layers` is not a sequence (one layer is [layer]), an entry not a Layer,
            `fold` or `retire` not a bool, or `implementation` neither a name nor a sequence.
        ValueError: for no layers, widths that do not chain, or an unknown implementation.
    """
    fold, retire = check_bool("fold", fold), check_bool("retire", retire)
    return assemble(chain(layers, fold), retire, named(implementation))


def assemble(chained: list[Layer], retire: bool = True, name: Implementation = None) -> Network:
    """The Network of layers from `chain`, or of the first few of them."""
    packed = pack(chained, retire)
    arrays = jax.tree.map(jnp.asarray, packed.arrays)
    return Network(**arrays, **packed.facts, implementation=name)


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
    nothing = dict.fromkeys(_DATA)
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
