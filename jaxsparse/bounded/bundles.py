"""Rows with the same inputs, sixteen at a time: one list of indices, their weights side by side.

A loaded value then serves sixteen rows. Bundles that share inputs lie side by side, so that what
one has loaded the next finds in the cache. Rows keep their own weights and biases, and each is
computed; only outputs that are equal in everything fold (`jaxsparse/bounded/inspect.py`).
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from jaxsparse.bounded.hashing import mix, running_sums
from jaxsparse.bounded.layer import Layer

BUNDLE = 16
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
    reverse Cuthill-McKee on the graph of shared inputs."""
    starts = np.asarray(layer.starts).astype(np.int64)
    sizes = np.diff(starts)[leaders]
    ends = np.cumsum(sizes)
    entries = np.repeat(starts[leaders] - ends + sizes, sizes) + np.arange(sizes.sum())
    indices = np.asarray(layer.indices)[entries].astype(np.int32)
    users = np.bincount(indices, minlength=layer.n_in).astype(np.int64)
    if (users**2).sum() > MOST_SHARED * len(indices):
        return np.arange(len(leaders))
    pointers = np.concatenate([np.zeros(1, np.int64), ends])
    shape = (len(leaders), layer.n_in)
    uses: Any = sp.csr_matrix((np.ones(len(indices), np.int32), indices, pointers), shape)
    return reverse_cuthill_mckee((uses @ uses.T).tocsr(), symmetric_mode=True).astype(np.int64)


def unit_rows(layer: Layer) -> int:
    """Rows of a unit: `BUNDLE`, or 1."""
    units: Any = layer.starts.shape[-1] - 1
    return layer.distinct // units if units else 1
