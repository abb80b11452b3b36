"""What can be proven of a layer once, before it runs.

An input row that is all `v` gives output j the value v * sum(w_j) + b_j. With a margin for float32
rounding in any order of summation, that is at the bound for every v from a threshold on. A zero row
gives b_j, which the lower clip takes to zero exactly when no bias is positive. Both are facts about
the weights alone, so a row in such a state needs no more work.
"""

from typing import Any

import numpy as np

_HALF_ULP = 2.0**-24


def zero_stays(bias: np.ndarray) -> bool:
    """Whether a row of zeros comes out as zeros."""
    return bool((bias <= 0).all())


def saturates_from(csr: Any, bias: np.ndarray, upper: float) -> float:
    """The least v such that rows of all v' >= v come out all `upper`; inf when no v does.

    Args:
        csr: float64 [distinct, n_in].
        bias: [distinct].
        upper: the bound.
    """
    if csr.shape[0] == 0:
        return 0.0
    entries = np.diff(csr.indptr)
    # Four partial sums and splits of entries stay below 2n + 8 roundings.
    error = (2 * entries + 8) * _HALF_ULP
    total = np.asarray(csr.sum(1)).ravel()
    size = np.asarray(abs(csr).sum(1)).ravel()
    slope = total - error * size
    needed = upper - bias + error * np.abs(bias)
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = np.where(slope > 0, needed / slope, np.inf)
    threshold = np.where((slope >= 0) & (needed <= 0), 0.0, threshold)
    # A copy of one input rounds nowhere, so it needs no margin.
    copies = (entries == 1) & (total == 1) & (bias == 0)
    threshold = np.where(copies, upper, threshold)
    return float(max(np.max(threshold), 0.0))
