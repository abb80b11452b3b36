"""The challenge's networks without folding, of any depth: the first layers as `network` packs them,
those behind them written down from the recipe.

Every weight of the challenge is 1/16 and every neuron of a layer has the same bias, so weights and
biases are made on the device. What a layer's neurons read comes from the recipe: sixteen neurons of
a pattern are a bundle, in the order of the patterns, where the first layers have them in an order
in which neighbours share inputs (`jaxsparse/bounded/bundles.py`).
"""

import jax.numpy as jnp
import numpy as np

from jaxsparse.bounded.bundles import BUNDLE, PANEL_LAYERS
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.pack import RETIRE_UPPER, RETIRE_ZERO
from jaxsparse.bounded.radixnet import distinct_columns
from jaxsparse.ops.bounded_network.api import Network, assemble

ENTRIES = 32


def deep_network(head: list[Layer], neurons: int, depth: int) -> Network:
    """The first `depth` layers of the challenge's network, every output computed.

    Args:
        head: its first `PANEL_LAYERS` layers, or `depth` where that is less, as `chain` gives them.
        neurons, depth: of the network.

    Raises:
        ValueError: when some layer of `head` lacks a proof that all of the challenge's have.
    """
    if depth <= len(head):
        return assemble(head[:depth])
    if len(head) < PANEL_LAYERS or not all(_as_all(layer, neurons) for layer in head):
        raise ValueError("head does not hold the challenge's first layers")
    stride, deep = neurons // BUNDLE, depth - len(head)
    numbers = np.arange(neurons)
    places = (BUNDLE * (numbers % stride) + numbers // stride).astype(np.uint16)
    before = head[-1].expand_map().astype(np.uint16)
    indices = np.empty((depth, stride, ENTRIES), np.uint16)
    for i, read in enumerate(distinct_columns(neurons, depth)):
        if i < len(head):
            indices[i] = np.asarray(head[i].indices).reshape(stride, ENTRIES)
        else:
            indices[i] = before[read]
            before = places
    starts = np.arange(0, stride * ENTRIES + 1, ENTRIES, dtype=np.int32)
    net = assemble(head)
    table = np.concatenate([np.asarray(net.table), np.zeros((deep, 8), np.uint32)])
    number = np.arange(depth, dtype=np.int64)
    sizes = (len(starts), stride * ENTRIES // 4, neurons, 0, 0, 0, neurons * ENTRIES // 4, 0)
    for column, size in enumerate(sizes):
        if size:
            table[:, column] = number * size
    table[:, 3], table[:, 4], table[:, 7] = neurons, neurons, BUNDLE
    table[:, 5] = RETIRE_ZERO | RETIRE_UPPER
    fixed = {"n_in": neurons, "n_out": neurons, "first": neurons, "widest": neurons}
    return Network(
        table=jnp.asarray(table),
        starts=jnp.tile(jnp.asarray(starts), depth),
        indices=jnp.asarray(indices.reshape(-1)),
        weights=jnp.full(neurons * ENTRIES * depth, np.float32(head[0].weights[0])),
        bias=jnp.full(neurons * depth, np.float32(head[0].bias[0])),
        uppers=jnp.full(depth, np.float32(head[0].upper)),
        expand=jnp.asarray(places.astype(np.int32)),
        depth=depth,
        upper=head[0].upper,
        decides=True,
        bundles=net.bundles,
        shapes=((neurons, neurons, stride * ENTRIES, BUNDLE),) * depth,
        implementation=None,
        **fixed,
    )


def _as_all(layer: Layer, neurons: int) -> bool:
    """Whether a layer is as the recipe says, and proven."""
    return (
        layer.distinct == neurons
        and len(layer.indices) == neurons // BUNDLE * ENTRIES
        and len(np.unique(layer.weights)) == len(np.unique(layer.bias)) == 1
        and layer.zero_stays
        and layer.keeps_upper(layer.upper)
    )
