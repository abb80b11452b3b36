"""A stack of layers becomes the arrays of a `Network`: folded from layer to layer, bundled, its
retirements planned."""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxsparse.bounded.bundles import bundle, bundled_ways, unit_rows
from jaxsparse.bounded.inspect import build
from jaxsparse.bounded.layer import Layer
from jaxsparse.core.contract import BoundedNetworkRow as Row
from jaxsparse.core.contract import RetireFlag
from jaxsparse.core.device import cores

RETIRE_ZERO, RETIRE_UPPER = RetireFlag.ZERO, RetireFlag.UPPER
Shape = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class Packed:
    """Arrays and facts of a stack, as `Network` holds them."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def chain(layers: Iterable[Any], fold: bool) -> list[Layer]:
    """The layers on the stored values of the one before them.

    Raises:
        TypeError, ValueError: as `network` says.
    """
    packed: list[Layer] = []
    for layer in checked(layers) if fold else _unfolded(checked(layers)):
        carried = _carry(layer, packed[-1] if packed else None)
        packed.append(bundle(carried) if fold else carried)
    if not packed:
        raise ValueError("layers is empty: a network needs at least one")
    return packed


def checked(layers: Iterable[Any]) -> Iterator[Layer]:
    """Each of the layers, when it fits the one before it.

    Raises:
        TypeError, ValueError: for an entry that is not a Layer, for a stack of layers, and for
            widths that do not fit.
    """
    if isinstance(layers, Layer) or not isinstance(layers, Iterable):
        one = "one Layer: write [layer]" if isinstance(layers, Layer) else type(layers).__name__
        raise TypeError(f"layers must be a sequence of js.bounded.Layer, not {one}")
    n_out = 0
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise TypeError(
                f"layer {i} must be a js.bounded.Layer, not {type(layer).__name__}: "
                "see js.bounded.inspect"
            )
        if len(layer.starts.shape) != 1:
            raise ValueError(f"layer {i} is a stack of layers; a network takes one at a time")
        if i and layer.n_in != n_out:
            raise ValueError(
                f"layer {i} takes {layer.n_in} inputs; layer {i - 1} has {n_out} outputs "
                "(js.bounded.inspect takes weights [n_in, n_out])"
            )
        n_out = layer.n_out
        yield layer


def _unfolded(layers: Iterator[Layer]) -> Iterator[Layer]:
    """Each layer with every output computed, bundled. No layer needs another for that: one at work
    for each core, and no more in memory."""
    at_work = cores()
    with ThreadPoolExecutor(at_work) as pool:
        ahead: deque[Any] = deque()
        for layer in layers:
            ahead.append(pool.submit(lambda layer: bundle(_unfold(layer)), layer))
            if len(ahead) > at_work:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _unfold(layer: Layer) -> Layer:
    """The layer with a row for every output."""
    if not layer.folded:
        return layer
    csr = layer.to_csr()[layer.expand_map()]
    return build(csr, layer.full_bias(), None, layer.n_out, layer.upper, False)


def _carry(layer: Layer, before: Layer | None) -> Layer:
    """The layer on the stored values of the one before it, folded where those are."""
    if before is None or not before.folded:
        return layer
    if _one_to_one(before):
        indices = before.expand_map()[np.asarray(layer.indices)]
        kind = np.uint16 if before.distinct <= 1 << 16 else np.int32
        return dataclasses.replace(layer, indices=indices.astype(kind), n_in=before.distinct)
    import scipy.sparse as sp

    csr = layer.to_csr()
    columns = before.expand_map()[csr.indices]
    csr: Any = sp.csr_matrix((csr.data, columns, csr.indptr), (csr.shape[0], before.distinct))
    csr.sum_duplicates()
    csr.eliminate_zeros()
    expand = layer.expand_map() if layer.folded else None
    return build(csr, np.asarray(layer.bias), expand, layer.n_out, layer.upper, True)


def _one_to_one(layer: Layer) -> bool:
    """Whether every output has a stored value of its own."""
    return layer.n_out == 0 or int(np.bincount(layer.expand_map()).max()) == 1


def pack(layers: list[Layer], retire: bool) -> Packed:
    """The arrays of chained layers, one after the other."""
    flags = _retirements(layers, retire)
    shapes: list[Shape] = []
    for i, layer in enumerate(layers):
        n_in = layers[0].n_in if i == 0 else layers[i - 1].distinct
        shapes.append((n_in, layer.distinct, layer.indices.shape[0], unit_rows(layer)))
    table = np.zeros((len(layers), len(Row)), np.uint32)
    table[1:, Row.STARTS] = np.cumsum([d // r + 1 for _, d, _, r in shapes])[:-1]
    table[1:, Row.INDEX_QUADS] = np.cumsum([e // 4 for _, _, e, _ in shapes])[:-1]
    table[1:, Row.BIASES] = np.cumsum([d for _, d, _, _ in shapes])[:-1]
    table[:, Row.INPUTS] = [n for n, _, _, _ in shapes]
    table[:, Row.DISTINCT] = [d for _, d, _, _ in shapes]
    table[:, Row.RETIRES] = flags
    table[1:, Row.WEIGHT_QUADS] = np.cumsum([e * r // 4 for _, _, e, r in shapes])[:-1]
    table[:, Row.UNIT_ROWS] = [r for _, _, _, r in shapes]
    bundles = bundled_ways(layers)
    index = np.int32 if any(n > 1 << 16 for n, _, _, _ in shapes) else np.uint16
    last = layers[-1]
    arrays = {
        "table": table,
        "starts": np.concatenate([layer.starts for layer in layers]),
        "indices": np.concatenate([np.asarray(layer.indices, index) for layer in layers]),
        "weights": np.concatenate([layer.weights for layer in layers]),
        "bias": np.concatenate([layer.bias for layer in layers]),
        "uppers": np.asarray([layer.upper for layer in layers], np.float32),
        "expand": last.expand_map() if last.folded else None,
    }
    widest = max(d for _, d, _, _ in shapes)
    facts = {
        "n_in": layers[0].n_in,
        "n_out": last.n_out,
        "depth": len(layers),
        "first": layers[0].distinct,
        "widest": max(widest, layers[0].n_in) if bundles else widest,
        "upper": last.upper,
        "decides": bool(flags[:-1].any()),
        "bundles": bundles,
        "shapes": tuple(shapes),
    }
    return Packed(arrays, facts)


def _retirements(layers: list[Layer], retire: bool) -> np.ndarray:
    """uint32[depth]: the states that every layer behind is proven to keep."""
    flags = np.zeros(len(layers), np.uint32)
    zero = upper = retire
    for i in range(len(layers) - 1, -1, -1):
        flags[i] = RETIRE_ZERO * zero + RETIRE_UPPER * upper
        zero &= layers[i].zero_stays
        upper &= i > 0 and layers[i].keeps_upper(layers[i - 1].upper)
    # What is known of the last layer's rows needs no proof.
    flags[-1] = RETIRE_ZERO | RETIRE_UPPER
    return flags
