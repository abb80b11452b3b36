"""The sparse DNN challenge's synthetic networks, from their recipe: nothing is read from disk."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxsparse.bounded.inspect import inspect
from jaxsparse.bounded.layer import Layer

#: The challenge's bias by width, and its bound.
BIASES = {1024: -0.3, 4096: -0.35, 16384: -0.4, 65536: -0.45}
UPPER = 32.0
SEED = 5489
_WEIGHT = 1 / 16


def patterns(neurons: int, layers: int, seed: int = SEED) -> Iterator[Any]:
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
        out = np.arange(neurons) % stride
        rows = np.concatenate(
            [out[:, None] + sixteen, (out[:, None] + (1 << k)) % stride + sixteen], axis=1
        )
        indices = order[rows] if permuted else rows
        indices = np.sort(indices[:stride], axis=1)[out].astype(np.int32).ravel()
        data = np.full(indices.size, _WEIGHT, np.float32)
        yield sp.csr_matrix((data, indices, np.arange(0, indices.size + 1, 32)), (neurons, neurons))


def radixnet_layer(weight: Any, *, fold: bool = True) -> Layer:
    """One of `patterns`' weights [neurons, neurons] with the challenge's bias and bound, inspected.

    Args:
        weight: float32 CSR.
        fold: compute identical outputs once.

    Returns:
        A Layer; the bias of a width that the challenge does not have is -0.3.
    """
    return inspect(weight, BIASES.get(weight.shape[0], -0.3), UPPER, fold=fold)


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
    return (radixnet_layer(w, fold=fold) for w in patterns(neurons, layers, seed))
