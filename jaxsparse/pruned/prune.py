"""`js.prune`: which weights to keep."""

from typing import Any

import numpy as np


def magnitude(w: Any, sparsity: float, granularity: tuple[int, int] = (1, 1)) -> np.ndarray:
    """Keep the blocks with the largest sum of magnitudes.

    Args:
        w: [..., n]: a matrix, or an HWIO kernel, read as [inputs, n]. Finite.
        sparsity: share of the blocks to prune, 0 to 1; rounded to whole blocks. Of equal blocks the
            first ones are pruned.
        granularity: inputs x outputs of a block.

    Returns:
        bool of w's shape: what is kept.

    Raises:
        ValueError: for a sparsity outside of [0, 1], a block smaller than 1, or NaN.
    """
    weight = np.asarray(w)
    weight = weight.astype(np.float32) if weight.dtype.kind != "f" else weight
    if weight.ndim < 2:
        raise ValueError(f"w has shape {weight.shape}; it needs two axes or more")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparsity={sparsity!r}; it takes a number from 0 to 1")
    if len(granularity) != 2 or min(granularity) < 1:
        raise ValueError(f"granularity={granularity!r}; it takes two ints of 1 or more")
    if np.isnan(weight).any():
        raise ValueError("w holds NaN")
    if weight.size == 0:
        return np.zeros(weight.shape, bool)
    flat = np.abs(weight.reshape(-1, weight.shape[-1]).astype(np.float64))
    inputs, outputs = flat.shape
    rows, columns = granularity
    score = np.add.reduceat(flat, np.arange(0, inputs, rows), axis=0)
    score = np.add.reduceat(score, np.arange(0, outputs, columns), axis=1)
    pruned = round(sparsity * score.size)
    kept = np.ones(score.size, bool)
    kept[np.argsort(score, axis=None, kind="stable")[:pruned]] = False
    blocks = kept.reshape(score.shape)
    mask = blocks[np.arange(inputs)[:, None] // rows, np.arange(outputs)[None] // columns]
    return mask.reshape(weight.shape)
