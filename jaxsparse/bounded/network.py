"""`network`: a whole stack of saturated layers as one call, weights packed at inspection, folded
from layer to layer.

Outputs with identical rows are one value, so the state that goes from layer to layer holds distinct
values only: the next layer's columns of equal inputs are summed. A row whose state is proven never
to change again (every remaining layer keeps zero rows zero, or rows at the bound at theirs)
retires: it is neither computed nor written any more.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from jaxsparse.bounded.activations import Activations, check_values
from jaxsparse.bounded.inspect import build
from jaxsparse.bounded.layer import Layer
from jaxsparse.ffi import Implementation, dispatch, lift
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.ops import bounded_matmul_native as native
from jaxsparse.ops.batching import fold as fold_axis
from jaxsparse.ops.batching import unfold
from jaxsparse.recorder import probe
from jaxsparse.reference import bounded_matmul as reference

RETIRE_ZERO, RETIRE_UPPER = 1, 2
_DATA = ("table", "starts", "indices", "weights", "bias", "uppers", "expand")
_META = (
    "n_in",
    "n_out",
    "depth",
    "first",
    "widest",
    "upper",
    "decides",
    "shapes",
    "implementation",
)


@functools.partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A packed stack: a pytree, callable under jit. Pass it as an argument; closed over, its
    weights become constants.

    Attributes:
        table: uint32[depth, 6]: of each layer where its starts, quads of entries and biases begin,
            inputs, distinct outputs, and which states retire after it (1 zero, 2 all at the bound).
        starts, indices, weights, bias: the layers' arrays, one after the other; uppers:
            float32[depth].
        expand: int32[n_out], the distinct value of each output, or int32[0].
        n_in, n_out, depth, upper: of the whole; first, widest: distinct outputs of the first and of
            the widest layer.
        decides: whether some state retires before the last layer.
        shapes: (inputs, distinct outputs, entries) of each layer.
    """

    table: Any
    starts: Any
    indices: Any
    weights: Any
    bias: Any
    uppers: Any
    expand: Any
    n_in: int
    n_out: int
    depth: int
    first: int
    widest: int
    upper: float
    decides: bool
    shapes: tuple[tuple[int, int, int], ...]
    implementation: Implementation

    def __call__(self, acts: Activations | Float[Array, "batch n_in"]) -> Activations:
        """The stack's result, Activations of float32[batch, n_out] with one code a row.

        Raises:
            TypeError, ValueError: for another dtype or width than the first layer's.
        """
        x = acts.materialize() if isinstance(acts, Activations) else acts
        x = check_values(x)
        if x.shape[1] != self.n_in:
            raise ValueError(f"acts has {x.shape[1]} columns; the network takes {self.n_in}")
        plan("bounded_network", self.implementation, NAMES)
        return _run(*lift(x, jax.tree.map(jnp.asarray, self)))

    def retires(self) -> dict[str, int]:
        """The first layer after which rows of each decided state retire for good; depth when none
        does."""
        flags = np.asarray(self.table)[:, 5]
        found = {"zero": flags & RETIRE_ZERO, "upper": flags & RETIRE_UPPER}
        return {k: int(np.argmax(v != 0)) if v.any() else self.depth for k, v in found.items()}

    def __repr__(self) -> str:
        entries = sum(e for _, _, e in self.shapes)
        return (
            f"Network({self.n_in} -> {self.n_out}, {self.depth} layers, "
            f"at most {self.widest} distinct values, "
            f"{entries} entries, retires from layer {self.retires()})"
        )


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
        TypeError: when an entry is no Layer.
        ValueError: for no layers, or widths that do not chain.
    """
    packed: list[Layer] = []
    previous: Layer | None = None
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise TypeError(
                f"layer {i} must be a js.bounded.Layer, not {type(layer).__name__}: "
                "see js.bounded.inspect"
            )
        if len(layer.starts.shape) != 1:
            raise ValueError(f"layer {i} is a stack of layers; a network takes one at a time")
        if previous is not None and layer.n_in != previous.n_out:
            raise ValueError(
                f"layer {i} takes {layer.n_in} inputs; layer {i - 1} has {previous.n_out} outputs"
            )
        previous = _carry(layer, packed[-1] if packed else None, fold)
        packed.append(previous)
    if not packed:
        raise ValueError("layers is empty: a network needs at least one")
    name = (
        implementation
        if implementation is None or isinstance(implementation, str)
        else tuple(implementation)
    )
    return _pack(packed, retire, name)


def _carry(layer: Layer, before: Layer | None, fold: bool) -> Layer:
    """The layer on the distinct values of the one before it."""
    if not fold and layer.folded:
        csr = layer.to_csr()[layer.expand_map()]
        layer = build(csr, layer.full_bias(), None, layer.n_out, layer.upper, False)
    if before is None or not before.folded:
        return layer
    csr = layer.to_csr()
    columns = before.expand_map()[csr.indices]
    csr: Any = sp.csr_matrix((csr.data, columns, csr.indptr), (csr.shape[0], before.distinct))
    csr.sum_duplicates()
    csr.eliminate_zeros()
    expand = layer.expand_map() if layer.folded else None
    return build(csr, np.asarray(layer.bias), expand, layer.n_out, layer.upper, fold)


def _pack(layers: list[Layer], retire: bool, implementation: Implementation) -> Network:
    depth = len(layers)
    flags = np.zeros(depth, np.uint32)
    zero = upper = retire
    for i in range(depth - 1, -1, -1):
        flags[i] = RETIRE_ZERO * zero + RETIRE_UPPER * upper
        zero &= layers[i].zero_stays
        upper &= i > 0 and layers[i].keeps_upper(layers[i - 1].upper)
    # What is known of the last layer's rows needs no proof.
    flags[-1] = RETIRE_ZERO | RETIRE_UPPER
    shapes = tuple(
        (layer.starts.shape[0] - 1, layer.distinct, layer.weights.shape[0]) for layer in layers
    )
    shapes = tuple((_inputs(layers, i), d, e) for i, (_, d, e) in enumerate(shapes))
    table = np.zeros((depth, 6), np.uint32)
    table[1:, 0] = np.cumsum([d + 1 for _, d, _ in shapes])[:-1]
    table[1:, 1] = np.cumsum([e // 4 for _, _, e in shapes])[:-1]
    table[1:, 2] = np.cumsum([d for _, d, _ in shapes])[:-1]
    table[:, 3] = [n for n, _, _ in shapes]
    table[:, 4] = [d for _, d, _ in shapes]
    table[:, 5] = flags
    wide = any(n > 1 << 16 for n, _, _ in shapes)
    last = layers[-1]
    index = np.int32 if wide else np.uint16
    arrays = (
        table,
        np.concatenate([layer.starts for layer in layers]),
        np.concatenate([np.asarray(layer.indices, index) for layer in layers]),
        np.concatenate([layer.weights for layer in layers]),
        np.concatenate([layer.bias for layer in layers]),
        np.asarray([layer.upper for layer in layers], np.float32),
        last.expand,
    )
    return Network(
        *map(jnp.asarray, arrays),
        n_in=layers[0].n_in,
        n_out=last.n_out,
        depth=depth,
        first=layers[0].distinct,
        widest=max(d for _, d, _ in shapes),
        upper=last.upper,
        decides=bool(flags[:-1].any()),
        shapes=shapes,
        implementation=implementation,
    )


def _inputs(layers: list[Layer], i: int) -> int:
    return layers[0].n_in if i == 0 else layers[i - 1].distinct


@jax.jit
def _run(x: jax.Array, net: Network) -> Activations:
    return _rows(x, net)


@custom_vmap
def _rows(x: jax.Array, net: Network) -> Activations:
    if 0 in (x.shape[0], net.n_out):
        return native.empty(net, x.shape[0])
    return dispatch(
        "bounded_network",
        net.implementation,
        cuda=lambda x, net: native.call_network(net, "cuda", x),
        cpu=lambda x, net: native.call_network(net, "cpu", x),
        reference=_reference,
    )(x, net)


@_rows.def_vmap
def _rows_rule(axis_size: int, in_batched: Any, x: jax.Array, net: Network) -> Any:
    x_batched, net_batched = in_batched
    if any(jax.tree.leaves(net_batched)):
        raise NotImplementedError(
            "vmap over networks: one network takes many images, so vmap the images only"
        )
    out = _rows(fold_axis(x, x_batched, axis_size), net)
    return jax.tree.map(lambda v: unfold(v, axis_size), out), jax.tree.map(lambda _: True, out)


def _reference(x: jax.Array, net: Network) -> Activations:
    starts = entries = biases = 0
    for i, (n_in, distinct, size) in enumerate(net.shapes):
        layer = Layer(
            net.starts[starts : starts + distinct + 1],
            net.indices[entries : entries + size],
            net.weights[entries : entries + size],
            net.bias[biases : biases + distinct],
            jnp.zeros(0, jnp.int32),
            n_in,
            distinct,
            0.0,
            False,
            0.0,
        )
        x = reference.bounded_matmul(x, dataclasses.replace(layer, upper=net.uppers[i]))
        starts, entries, biases = starts + distinct + 1, entries + size, biases + distinct
    y = x[:, net.expand] if net.expand.shape[0] else x
    return Activations(y, probe(y, max(net.n_out, 1), net.upper))
