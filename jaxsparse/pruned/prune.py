"""`js.prune`: which weights to keep."""

from __future__ import annotations

import numbers

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from jaxsparse.core.dtypes import FLOATS
from jaxsparse.core.integers import static_int
from jaxsparse.core.variables import takes_variables
from jaxsparse.pruned.checks import check_concrete, check_dense

__all__ = ["magnitude"]


def __dir__() -> list[str]:
    """The API."""
    return __all__


@takes_variables
def magnitude(
    w: ArrayLike, sparsity: float, granularity: tuple[int, int] = (1, 1)
) -> NDArray[np.bool_]:
    """Keep the blocks with the largest sum of magnitudes.

    Args:
        w: [..., n]: a matrix, or an HWIO kernel, read as [inputs, n]; concrete, without NaN.
        sparsity: share of the blocks to prune, 0 to 1; rounded to whole blocks. Of equal blocks the
            first ones are pruned.
        granularity: inputs x outputs of a block.

    Returns:
        bool of w's shape: the weights to keep.

    Raises:
        TypeError: when an argument is not an array, number or pair of ints; for a w that is traced,
            sparse or a masked array.
        ValueError: for a sparsity outside of [0, 1], a block smaller than 1, or NaN.
    """
    check_concrete("w", w)
    check_dense("w", w)
    weight = np.asarray(w)
    if weight.dtype.kind not in "fiub" and weight.dtype not in FLOATS:
        raise TypeError(f"w has dtype {weight.dtype}; it takes real numbers")
    weight = weight.astype(np.float32) if weight.dtype.kind != "f" else weight
    if isinstance(sparsity, (bool, np.bool_)) or not isinstance(sparsity, numbers.Real):
        raise TypeError(f"sparsity={sparsity!r}; it takes a number from 0 to 1")
    try:
        rows, columns = (static_int(n) for n in granularity)
    except (TypeError, ValueError):
        raise TypeError(f"granularity={granularity!r}; it takes two ints of 1 or more") from None
    if weight.ndim < 2:
        raise ValueError(f"w has shape {weight.shape}; it needs two axes or more")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparsity={sparsity!r}; it takes a number from 0 to 1")
    if min(rows, columns) < 1:
        raise ValueError(f"granularity={granularity!r}; it takes two ints of 1 or more")
    if np.isnan(weight).any():
        raise ValueError("w holds NaN")
    if weight.size == 0:
        return np.zeros(weight.shape, bool)
    flat = np.abs(weight.reshape(-1, weight.shape[-1]).astype(np.float64))
    inputs, outputs = flat.shape
    score = np.add.reduceat(flat, np.arange(0, inputs, rows), axis=0)
    score = np.add.reduceat(score, np.arange(0, outputs, columns), axis=1)
    pruned = round(sparsity * score.size)
    kept = np.ones(score.size, bool)
    kept[np.argsort(score, axis=None, kind="stable")[:pruned]] = False
    blocks = kept.reshape(score.shape)
    mask = blocks[np.arange(inputs)[:, None] // rows, np.arange(outputs)[None] // columns]
    return mask.reshape(weight.shape)
