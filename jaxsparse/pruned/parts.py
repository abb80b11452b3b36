"""Outputs split into parts of equal work, by their number of entries."""

import itertools

import numpy as np

UNIT = 16  # outputs that lie side by side: they stay in one part


def share_out(lengths: np.ndarray, parts: int) -> np.ndarray:
    """Split rows into `parts` of nearly equal work.

    A part is a run of units of 16 rows, cut where the work so far is nearest to its share: two
    workers write next to each other at one edge only. (Dealing out single units balances the work
    slightly better, but workers then share cache lines everywhere.) Rows keep their order: the
    weights of a network are seldom in a cache, and what is read in order is prefetched.

    Args:
        lengths: int[rows], the entries of each row.
        parts: 1 or more.

    Returns:
        int32[parts + 1], the row at which each part begins.
    """
    rows = len(lengths)
    work = np.add.reduceat(lengths, np.arange(0, rows, UNIT)) if rows else np.zeros(0, np.int64)
    so_far = np.concatenate([[0], np.cumsum(work + 1)])
    shares = so_far[-1] * np.arange(parts + 1) / parts
    edges = np.abs(so_far[:, None] - shares).argmin(0)
    edges[-1] = len(work)
    return np.minimum(edges * UNIT, rows).astype(np.int32)


def imbalance(lengths: np.ndarray, parts: int) -> float:
    """Work of the heaviest part over the mean; 1 is balanced; also 1 without work."""
    loads = [int(lengths[a:b].sum()) for a, b in itertools.pairwise(share_out(lengths, parts))]
    mean = sum(loads) / len(loads)
    return max(loads) / mean if mean else 1.0
