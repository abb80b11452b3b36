"""Rows shared out by their number of entries: parts of equal work, each visited from its longest
row to its shortest.
"""

import heapq
import itertools

import numpy as np

UNIT = 16  # rows whose results lie side by side: they stay in one part


def share_out(lengths: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into `parts` of nearly equal work.

    Units of 16 consecutive rows go, largest first, to the part with the least work so far; inside
    a part the rows are bucket-sorted by their number of entries, so that neighbours take equally
    long.

    Args:
        lengths: int[rows], the entries of each row.
        parts: 1 or more.

    Returns:
        `order` int32[rows], the rows as they are visited, and `starts` int32[parts + 1], where each
        part begins.
    """
    rows = len(lengths)
    units = -(-rows // UNIT)
    work = np.add.reduceat(lengths, np.arange(0, rows, UNIT)) if rows else np.zeros(0, np.int64)
    loads = [(0, p) for p in range(parts)]
    part_of = np.zeros(units, np.int64)
    for unit in np.argsort(-work, kind="stable"):
        load, part = heapq.heappop(loads)
        part_of[unit] = part
        heapq.heappush(loads, (load + int(work[unit]) + 1, part))
    part_of_row = np.repeat(part_of, UNIT)[:rows]
    order = np.lexsort((-lengths, part_of_row)).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(part_of_row, minlength=parts))])
    return order, starts.astype(np.int32)


def imbalance(lengths: np.ndarray, parts: int) -> float:
    """Work of the heaviest part over the mean; 1 is balanced (and what no work has)."""
    order, starts = share_out(lengths, parts)
    loads = [int(lengths[order[a:b]].sum()) for a, b in itertools.pairwise(starts)]
    mean = sum(loads) / len(loads)
    return max(loads) / mean if mean else 1.0
