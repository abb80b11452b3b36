"""Rows with the same inputs, sixteen at a time: one list of indices, their weights side by side.

A loaded value then serves sixteen rows. Bundles that share inputs lie side by side, so that what
one has loaded the next finds in the cache. Rows keep their own weights and biases, and each is
computed; only outputs that are equal in everything fold (`jaxsparse/bounded/inspect.py`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsparse.bounded.hashing import mix, running_sums
from jaxsparse.bounded.layer import Layer

BUNDLE = 16
#: A panel (cuda/kernels/bounded_network/panel.cuh): bundles, entries of each, inputs of all at
#: most.
PANEL, PANEL_ENTRIES, PANEL_INPUTS = 16, 32, 303
#: How many layers of a stack go by panels; images that have this many times a panel's inputs in
#: the sectors that hold them are turned instead.
PANEL_LAYERS, MOST_SECTORS = 34, 1.75
_SECTOR = 8
#: Bundle where filling up makes no more than this many rows of one.
MOST_FILLED = 1.25
#: Look for neighbours where an input has no more than this many bundles, on average over entries.
MOST_SHARED = 64


def bundle(layer: Layer) -> Layer:
    """The layer with its rows bundled, or as it is where that would not pay.

    The last bundle of a pattern is filled up with copies of one of its rows, so that what is true
    of all rows stays true of all of them. `expand` then names where each output is.
    """
    rows, order = _patterns(layer)
    filled = -(-rows // BUNDLE) * BUNDLE
    if not len(order) or not layer.weights.shape[0] or filled.sum() > MOST_FILLED * len(order):
        return layer
    begins = np.cumsum(rows) - rows
    near = _neighbours(layer, order[begins])
    rows, begins, filled = rows[near], begins[near], filled[near]
    # Of each place: its pattern, and the row of `order` that it holds.
    pattern = np.repeat(np.arange(len(rows)), filled)
    within = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled)
    held = order[begins[pattern] + np.minimum(within, rows[pattern] - 1)]
    places = np.empty(len(order), np.int64)
    places[held[::-1]] = np.arange(len(held))[::-1]
    starts = np.asarray(layer.starts).astype(np.int64)
    leaders = held[::BUNDLE]
    sizes = np.diff(starts)[leaders]
    ends = np.cumsum(sizes)
    entries = np.repeat(starts[leaders] - ends + sizes, sizes) + np.arange(sizes.sum())
    lanes = starts[:-1][held].reshape(-1, BUNDLE) - starts[leaders][:, None]
    weights = np.asarray(layer.weights)[entries[:, None] + np.repeat(lanes, sizes, axis=0)]
    return dataclasses.replace(
        layer,
        starts=np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)]),
        indices=np.asarray(layer.indices)[entries],
        weights=weights.ravel(),
        bias=np.asarray(layer.bias)[held],
        expand=places[layer.expand_map()].astype(np.int32),
    )


def _patterns(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """How many rows each pattern has, and the rows in the order of their patterns' first
    appearance.

    Patterns are grouped by a hash and compared entry by entry with their first row's; rows that
    differ (a collision) become patterns of their own.
    """
    starts, indices = np.asarray(layer.starts).astype(np.int64), np.asarray(layer.indices)
    lengths = np.diff(starts)
    if not len(lengths):
        return lengths, lengths
    running = running_sums(mix(indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)))
    keys = mix(running[starts[1:]] - running[starts[:-1]] + lengths.astype(np.uint64))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    leader = first[group]
    alike = lengths == lengths[leader]
    size = np.where(alike, lengths, 0)
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    mine, theirs = np.repeat(starts[:-1], size), np.repeat(starts[:-1][leader], size)
    differ = indices[mine + within] != indices[theirs + within]
    alike[np.repeat(np.arange(len(size)), size)[differ]] = False
    leader = np.where(alike, leader, np.arange(len(leader)))
    order = np.argsort(leader, kind="stable")
    return np.unique(leader, return_counts=True)[1], order


def _neighbours(layer: Layer, leaders: np.ndarray) -> np.ndarray:
    """An order of the patterns, given by a row of each, in which those that share inputs are close:
    reverse Cuthill-McKee on the graph of shared inputs, or as they come where a panel then has
    fewer inputs."""
    starts = np.asarray(layer.starts).astype(np.int64)
    sizes = np.diff(starts)[leaders]
    ends = np.cumsum(sizes)
    entries = np.repeat(starts[leaders] - ends + sizes, sizes) + np.arange(sizes.sum())
    indices = np.asarray(layer.indices)[entries].astype(np.int32)
    users = np.bincount(indices, minlength=layer.n_in).astype(np.int64)
    own = np.arange(len(leaders))
    if (users**2).sum() > MOST_SHARED * len(indices):
        return own
    import scipy.sparse as sp
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    pointers = np.concatenate([np.zeros(1, np.int64), ends])
    shape = (len(leaders), layer.n_in)
    uses: Any = sp.csr_matrix((np.ones(len(indices), np.int32), indices, pointers), shape)
    near = reverse_cuthill_mckee((uses @ uses.T).tocsr(), symmetric_mode=True).astype(np.int64)
    if sizes.max() > PANEL_ENTRIES:
        return near
    moved = uses[near]
    as_they_come = _distinct(_panels(pointers, indices)).sum()
    return near if _distinct(_panels(moved.indptr, moved.indices)).sum() < as_they_come else own


def unit_rows(layer: Layer) -> int:
    """Rows of a unit: `BUNDLE`, or 1."""
    units: Any = layer.starts.shape[-1] - 1
    return layer.distinct // units if units else 1


def bundled_ways(layers: Sequence[Layer]) -> int:
    """How the GPU may go through a stack: 0: no layer has bundles; 1: some have; 2: the first
    `PANEL_LAYERS` of them go by panels; 3: and the first of those reads the images as they are."""
    if not any(unit_rows(layer) == BUNDLE for layer in layers):
        return 0
    for layer in layers[:PANEL_LAYERS]:
        lengths = np.diff(np.asarray(layer.starts))
        if unit_rows(layer) != BUNDLE or lengths.max(initial=0) > PANEL_ENTRIES:
            return 1
        if _distinct(_panels(layer.starts, layer.indices)).max() > PANEL_INPUTS:
            return 1
    panels = _panels(layers[0].starts, layers[0].indices)
    sectors = _SECTOR * _distinct(np.where(panels < 0, -1, panels // _SECTOR)).sum()
    return 3 if sectors <= MOST_SECTORS * _distinct(panels).sum() else 2


def _panels(starts: Any, indices: Any) -> np.ndarray:
    """The inputs of each panel's entries, ascending, int[panels, entries]; -1 where there is none.
    Bundles of `PANEL_ENTRIES` at most."""
    lengths: Any = np.diff(np.asarray(starts))
    inputs = np.full((-(-len(lengths) // PANEL) * PANEL, PANEL_ENTRIES), -1, np.int64)
    held = np.arange(PANEL_ENTRIES) < lengths[:, None]
    inputs[: len(lengths)][held] = np.asarray(indices)
    return np.sort(inputs.reshape(-1, PANEL * PANEL_ENTRIES), axis=1)


def _distinct(panels: np.ndarray) -> np.ndarray:
    """How many different inputs each row of ascending ones has; -1 is none."""
    first = np.diff(panels, axis=1, prepend=-1) != 0
    return (first & (panels >= 0)).sum(1)
