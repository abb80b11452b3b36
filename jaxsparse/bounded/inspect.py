"""`inspect`: a weight matrix becomes a `Layer`, once, outside jit: checked, folded, padded, its
proofs attached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jax.typing import ArrayLike

from jaxsparse.bounded.certify import saturates_from, zero_stays
from jaxsparse.bounded.hashing import mix, running_sums
from jaxsparse.bounded.layer import Layer
from jaxsparse.core.sparse import as_scipy
from jaxsparse.core.variables import takes_variables

if TYPE_CHECKING:
    from jaxsparse.core.sparse import SparseMatrix

_QUAD = 4
_LEAST = 2.0**-124  # a quarter of it is the least normal float32


@takes_variables
def inspect(
    weight: ArrayLike | SparseMatrix,
    bias: npt.ArrayLike,
    upper: float,
    *,
    fold: bool = True,
) -> Layer:
    """Prepare one layer y = min(max(x W + b, 0), upper).

    Args:
        weight: [n_in, n_out], as in `x @ W`: dense, a scipy sparse matrix, or a BCOO or BCSR of
            `jax.experimental.sparse` (entries in any order; duplicate ones are summed). Finite.
        bias: a number, or [n_out], finite.
        upper: the bound, finite and > 0.
        fold: compute identical outputs once.

    Returns:
        A Layer; `.proofs()` says what was proven.

    Raises:
        TypeError: when `weight` is not a matrix of real numbers, `bias` or `upper` not a real
            number, `fold` not a bool, or an argument is traced.
        ValueError: for NaN or Inf, a bias of a wrong shape, a bound that is not positive, or
            indices out of range.
    """
    for name, given in (("weight", weight), ("bias", bias), ("upper", upper)):
        if isinstance(given, Tracer):
            raise TypeError(
                f"{name} is traced: inspect looks at numbers, outside of jit and grad; "
                "Layer.with_values takes traced ones for a pattern that was inspected"
            )
    if not isinstance(fold, (bool, np.bool_)):
        raise TypeError(f"fold must be a bool, not {type(fold).__name__}")
    csr = _by_output(weight)
    biases = _bias(bias, csr.shape[0], csr.shape[1])
    number = _real("upper", upper)
    if number.ndim != 0 or not 0 < float(number) < np.inf:
        raise ValueError(f"upper={upper!r}; it takes a finite number > 0")
    with np.errstate(over="ignore"):
        bound = float(np.float32(number))
    if bound <= 0 or not np.isfinite(bound):
        raise ValueError(f"upper={upper!r} is not a positive float32")
    return build(csr, biases, None, csr.shape[0], bound, fold)


def build(
    csr: Any,
    bias: np.ndarray,
    expand: np.ndarray | None,
    n_out: int,
    upper: float,
    fold: bool,
) -> Layer:
    """A Layer from canonical float64 rows [rows, n_in], their float32 bias, and which row each
    output takes."""
    if fold:
        csr, bias, groups = fold_rows(csr, bias)
        if groups is not None:
            expand = groups if expand is None else groups[expand]
    starts, indices, weights = pad_rows(csr)
    if csr.shape[1] <= 1 << 16:
        indices = indices.astype(np.uint16)
    if len(indices) >= 2**31:
        raise ValueError(f"weight has {csr.nnz} entries; a layer takes fewer than 2^31")
    return Layer(
        starts.astype(np.int32),
        indices,
        weights,
        bias,
        None if expand is None else expand.astype(np.int32),
        csr.shape[1],
        n_out,
        upper,
        zero_stays(bias),
        saturates_from(csr, bias.astype(np.float64), upper),
    )


def _by_output(weight: Any) -> Any:
    """`weight` [n_in, n_out] as float64 CSR [n_out, n_in]: sorted, duplicates summed, zeros (and
    what has no quarter in float32) dropped, values those of float32."""
    import scipy.sparse as sp

    weight = as_scipy("weight", weight)
    if not hasattr(weight, "shape") or len(weight.shape) != 2:
        shape = getattr(weight, "shape", None)
        given = type(weight).__name__ + ("" if shape is None else f" of shape {shape}")
        raise TypeError(
            f"weight must be a matrix [n_in, n_out] (numpy, jax, scipy, BCOO or BCSR), not {given}"
        )
    if not sp.issparse(weight):
        weight = np.asarray(weight)
    if not (np.issubdtype(weight.dtype, np.number) or weight.dtype == np.bool_) or np.issubdtype(
        weight.dtype, np.complexfloating
    ):
        if not str(weight.dtype).startswith(("bfloat16", "float8")):
            raise TypeError(f"weight has dtype {weight.dtype}; it takes real numbers")
        weight = weight.astype(np.float32)
    if sp.issparse(weight):
        _check_pattern(weight)
    csr = sp.csr_matrix(weight.T, dtype=np.float64, copy=True)
    if not np.isfinite(csr.data).all():
        raise ValueError("weight holds NaN or Inf")
    csr.sum_duplicates()
    with np.errstate(over="ignore"):
        csr.data = csr.data.astype(np.float32).astype(np.float64)
    if not np.isfinite(csr.data).all():
        raise ValueError("weight holds numbers past float32")
    csr.data[np.abs(csr.data) < _LEAST] = 0
    csr.eliminate_zeros()
    return csr


def _check_pattern(weight: Any) -> None:
    """scipy itself does not look whether the indices lie inside."""
    if weight.format not in ("csr", "csc"):
        return
    limit = weight.shape[1] if weight.format == "csr" else weight.shape[0]
    if weight.nnz and (weight.indices.min() < 0 or weight.indices.max() >= limit):
        raise ValueError(f"weight has an index out of range; it needs 0 <= index < {limit}")
    if weight.indptr[0] != 0 or (np.diff(weight.indptr) < 0).any():
        raise ValueError("weight's indptr does not ascend from 0")


def _bias(bias: Any, n_out: int, n_in: int) -> np.ndarray:
    values = _real("bias", bias)
    if values.ndim == 0:
        values = np.full(n_out, values)
    if values.shape != (n_out,):
        turned = "; is it the transposed one?" if values.shape == (n_in,) else ""
        raise ValueError(
            f"bias has shape {values.shape}; it takes a number or [{n_out}], because weight is "
            f"[n_in, n_out] = [{n_in}, {n_out}]{turned}"
        )
    if not np.isfinite(values).all():
        raise ValueError("bias holds NaN or Inf")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("bias holds numbers past float32")
    return values


def _real(name: str, value: Any) -> np.ndarray:
    """`value` as an array of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise TypeError(f"{name} must hold real numbers: {error}") from error
    if array.dtype.kind not in "biuf" and not str(array.dtype).startswith(("bfloat16", "float8")):
        raise TypeError(f"{name}={value!r}; it takes real numbers")
    return array


def fold_rows(csr: Any, bias: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """The distinct (row, bias) pairs, in order of first appearance, and which one each row is;
    None: all differ.

    Rows are grouped by a hash and then compared entry by entry with their group's first row: a
    collision costs a fold.
    """
    rows = csr.shape[0]
    lengths = np.diff(csr.indptr)
    mixed = mix(csr.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    mixed = mix(mixed ^ csr.data.astype(np.float32).view(np.uint32).astype(np.uint64))
    running = running_sums(mixed)
    keys = running[csr.indptr[1:]] - running[csr.indptr[:-1]]
    keys = mix(keys ^ (bias.view(np.uint32).astype(np.uint64) << np.uint64(20)))
    keys = mix(keys + lengths.astype(np.uint64))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    leader = first[group]
    alike = _same_rows(csr, bias, lengths, leader)
    leader = np.where(alike, leader, np.arange(rows))
    chosen, groups = np.unique(leader, return_inverse=True)
    if len(chosen) == rows:
        return csr, bias, None
    return csr[chosen], bias[chosen], groups


def _same_rows(csr: Any, bias: np.ndarray, lengths: np.ndarray, leader: np.ndarray) -> np.ndarray:
    """bool[rows]: whether a row equals its leader."""
    alike = (lengths == lengths[leader]) & (bias == bias[leader])
    compared = np.flatnonzero(alike & (lengths > 0) & (leader != np.arange(len(leader))))
    if not len(compared):
        return alike
    size = lengths[compared]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    mine = np.repeat(csr.indptr[compared], size) + within
    theirs = np.repeat(csr.indptr[leader[compared]], size) + within
    equal = (csr.indices[mine] == csr.indices[theirs]) & (csr.data[mine] == csr.data[theirs])
    alike[compared] = np.logical_and.reduceat(equal, np.cumsum(size) - size)
    return alike


def pad_rows(csr: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(starts, indices, weights) with every row a multiple of four long.

    Entries are split into halves or quarters to fill up: exact in binary, and no entry that the row
    does not have is ever read.
    """
    lengths = np.diff(csr.indptr).astype(np.int64)
    padded = -(-lengths // _QUAD) * _QUAD
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(padded)])
    within = np.arange(csr.nnz) - np.repeat(csr.indptr[:-1].astype(np.int64), lengths)
    copies = 1 + (within < np.repeat(padded - lengths, lengths))
    copies[np.repeat(lengths == 1, lengths)] = _QUAD
    weights = (csr.data / copies).astype(np.float32)
    return starts, np.repeat(csr.indices.astype(np.int32), copies), np.repeat(weights, copies)
