"""The grouped product in float64 numpy, one row at a time: shares no code with the package."""

import numpy as np


def owners(sizes, rows):
    """The group of each sorted row, -1 where none owns it."""
    owner = np.full(rows, -1)
    at = 0
    for group, size in enumerate(np.asarray(sizes)):
        owner[at : at + max(int(size), 0)] = group
        at += max(int(size), 0)
    return owner


def grouped_matmul(lhs, rhs, sizes, *, gather=None, scatter=None, row_weights=None, num_rows=None):
    """Rows that no group owns and indices out of range contribute nothing."""
    lhs, rhs = np.asarray(lhs, np.float64), np.asarray(rhs, np.float64)
    rows = len(lhs) if gather is None else len(gather)
    height = rows if scatter is None else len(lhs) if num_rows is None else num_rows
    out = np.zeros((height, rhs.shape[2]))
    for i, group in enumerate(owners(sizes, rows)):
        source = i if gather is None else int(gather[i])
        target = i if scatter is None else int(scatter[i])
        if group < 0 or not 0 <= source < len(lhs) or not 0 <= target < height:
            continue
        weight = 1.0 if row_weights is None else float(row_weights[i])
        out[target] += weight * (lhs[source] @ rhs[group])
    return out


def route(expert_ids, experts):
    """order, group_sizes: a stable sort with unknown experts last."""
    flat = np.asarray(expert_ids).reshape(-1).astype(np.int64)
    bucket = np.where((flat >= 0) & (flat < experts), flat, experts)
    order = sorted(range(len(flat)), key=lambda i: bucket[i])
    return np.asarray(order, np.int64), np.bincount(bucket, minlength=experts + 1)[:experts]
