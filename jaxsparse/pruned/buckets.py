"""Rows shared out by their number of entries: parts of equal work, each visited from its longest
row to its shortest.
"""

import itertools

import numpy as np

UNIT = 16  # rows whose results lie side by side: they stay in one part


def share_out(lengths: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into `parts` of nearly equal work.

    A part is a run of units of 16 rows, cut where the work so far is nearest to its share: what two
    workers write lies apart but for one edge (dealing units out evens the work a little more, and
    has two workers write to the same cache lines everywhere). Inside a part the rows are bucket-
    sorted by their number of entries, so that neighbours take equally long.

    Args:
        lengths: int[rows], the entries of each row.
        parts: 1 or more.

    Returns:
        `order` int32[rows], the rows as they are visited, and `starts` int32[parts + 1], where each
        part begins.
    """
    rows = len(lengths)
    work = np.add.reduceat(lengths, np.arange(0, rows, UNIT)) if rows else np.zeros(0, np.int64)
    so_far = np.concatenate([[0], np.cumsum(work + 1)])
    shares = so_far[-1] * np.arange(parts + 1) / parts
    edges = np.abs(so_far[:, None] - shares).argmin(0)
    edges[-1] = len(work)
    part_of_row = np.repeat(np.repeat(np.arange(parts), np.diff(edges)), UNIT)[:rows]
    order = np.lexsort((-lengths, part_of_row)).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(part_of_row, minlength=parts))])
    return order, starts.astype(np.int32)


def imbalance(lengths: np.ndarray, parts: int) -> float:
    """Work of the heaviest part over the mean; 1 is balanced (and what no work has)."""
    order, starts = share_out(lengths, parts)
    loads = [int(lengths[order[a:b]].sum()) for a, b in itertools.pairwise(starts)]
    mean = sum(loads) / len(loads)
    return max(loads) / mean if mean else 1.0
