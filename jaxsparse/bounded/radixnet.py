"""The sparse DNN challenge's synthetic networks, from their recipe: nothing is read from disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from jaxsparse.bounded.inspect import build, inspect
from jaxsparse.bounded.layer import Layer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: The challenge's bias by width, and its bound.
BIASES: dict[int, float] = {1024: -0.3, 4096: -0.35, 16384: -0.4, 65536: -0.45}
UPPER = 32.0
SEED = 5489
_WEIGHT = 1 / 16


def patterns(neurons: int, layers: int, seed: int = SEED) -> Iterator[csr_matrix]:
    """The weight of each layer in turn, float32 CSR [out, in]: 32 entries a neuron, all 1/16.

    Butterfly layers k = 0, 1, ... connect r to c = r and r - 2^k modulo a sixteenth of the width;
    after the last k a new random permutation of the inputs starts the next round.

    Args:
        neurons: a multiple of 16 whose sixteenth is a power of two.
        layers: how many.
        seed: of the permutations.

    Raises:
        ValueError: for another width or a negative number of layers.
    """
    import scipy.sparse as sp

    out = np.arange(neurons) % max(neurons // 16, 1)
    for columns in distinct_columns(neurons, layers, seed):
        indices = columns[out].ravel()
        data = np.full(indices.size, _WEIGHT, np.float32)
        yield sp.csr_matrix((data, indices, np.arange(0, indices.size + 1, 32)), (neurons, neurons))


def distinct_columns(neurons: int, layers: int, seed: int = SEED) -> Iterator[np.ndarray]:
    """The inputs of each layer's distinct outputs, int32[neurons / 16, 32], ascending: output j is
    as j modulo a sixteenth."""
    stride = neurons // 16
    if neurons < 32 or neurons % 16 or stride & (stride - 1):
        raise ValueError(f"neurons={neurons}; it takes 16 times a power of two, at least 32")
    if layers < 0:
        raise ValueError(f"layers={layers}; it takes a number >= 0")
    rounds, order = stride.bit_length() - 1, np.arange(neurons)
    random = np.random.RandomState(seed)
    sixteen = np.arange(16) * stride
    for layer in range(layers):
        permuted, k = divmod(layer, rounds)
        if permuted and k == 0:
            order = np.argsort(random.random_sample(neurons))
        out = np.arange(stride)
        rows = np.concatenate(
            [out[:, None] + sixteen, (out[:, None] + (1 << k)) % stride + sixteen], axis=1
        )
        yield np.sort(order[rows] if permuted else rows, axis=1).astype(np.int32)


def radixnet_layer(weight: csr_matrix, *, fold: bool = True) -> Layer:
    """A weight of the challenge with its bias and bound, inspected.

    Args:
        weight: float32 CSR [n_in, n_out] of equal widths, as `read_layer` returns it.
        fold: compute identical outputs once.

    Returns:
        A Layer; the bias of a width that the challenge does not have is -0.3.
    """
    neurons, _ = cast(tuple[int, int], weight.shape)
    return inspect(weight, BIASES.get(neurons, -0.3), UPPER, fold=fold)


def radixnet(neurons: int, layers: int, seed: int = SEED, *, fold: bool = True) -> Iterator[Layer]:
    """The challenge's network of that width and depth, layer by layer.

    Args:
        neurons: 1024, 4096, 16384, 65536, or 16 times another power of two.
        layers: 120, 480, 1920 or any other number.
        seed: of the permutations; the default gives the official 1024-neuron layers entry for
            entry.
        fold: compute identical outputs once.

    Returns:
        An iterator over inspected Layers; a list of it is what `network` takes.

    Raises:
        ValueError: for a width that the recipe does not have.
    """
    return (_layer(columns, neurons, fold) for columns in distinct_columns(neurons, layers, seed))


def _layer(columns: np.ndarray, neurons: int, fold: bool) -> Layer:
    """What `radixnet_layer` makes of the whole weight, from its distinct rows: proofs hold for all
    when they hold for these."""
    import scipy.sparse as sp

    stride = len(columns)
    pointers = np.arange(0, columns.size + 1, 32)
    weight = sp.csr_matrix(
        (np.full(columns.size, _WEIGHT), columns.ravel(), pointers), (stride, neurons)
    )
    bias = np.full(stride, BIASES.get(neurons, -0.3), np.float32)
    expand = np.tile(np.arange(stride, dtype=np.int32), 16)
    layer = build(weight, bias, expand, neurons, UPPER, True)
    if fold:
        return layer
    repeated = {k: np.tile(getattr(layer, k)[layer.expand_map()[:stride]], 16) for k in ("bias",)}
    entries = {k: getattr(layer, k).reshape(-1, 32) for k in ("indices", "weights")}
    whole = {k: v[layer.expand_map()].ravel() for k, v in entries.items()}
    starts = np.arange(0, 32 * neurons + 1, 32, dtype=np.int32)
    return dataclasses.replace(layer, starts=starts, expand=None, **repeated, **whole)
