"""`inspect`: a pruned weight becomes a `PrunedWeight`, once, outside jit.

Inspector and executor, with the pattern known before the run: SparseRT (Wang), 2.3 and 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jaxsparse.core.checks import check_positive
from jaxsparse.core.dtypes import FLOATS
from jaxsparse.core.sparse import as_scipy
from jaxsparse.core.types import Kind
from jaxsparse.core.variables import takes_variables
from jaxsparse.pruned.checks import check_concrete, check_dense
from jaxsparse.pruned.parts import UNIT, imbalance
from jaxsparse.pruned.pattern import MAX_ENTRIES, MAX_TAPS, Pattern
from jaxsparse.pruned.plan import Plan
from jaxsparse.pruned.weight import PrunedWeight

if TYPE_CHECKING:
    from jaxsparse.core.sparse import SparseMatrix

KINDS = ("matmul", "conv")
_PARTS = 8  # that the statistics share the outputs out to


@takes_variables
def inspect(
    w: ArrayLike | SparseMatrix,
    *,
    kind: Kind = "matmul",
    mask: Bool[ArrayLike, "..."] | None = None,
    groups: int = 1,
) -> PrunedWeight:
    """Prepare a pruned weight: done once, on the host; the pattern is known from then on.

    Args:
        w: [k, n] of `y = x @ w`, a numpy or jax array, a scipy sparse matrix, or a BCOO or BCSR of
            `jax.experimental.sparse`; with kind="conv" [kh, kw, C/groups, O]. float32, bfloat16 or
            float16 (float64 becomes float32), finite.
        kind: "matmul" or "conv".
        mask: bool of w's shape: which weights are kept, zeros among them; the others are dropped.
            None keeps what is not zero.
        groups: of a convolution.

    Returns:
        A `PrunedWeight`. `js.pruned.statistics` says what was found.

    Raises:
        TypeError: when w is not an array of real numbers of that rank, or not a plain one (masked,
            sparse with batch axes, traced); when mask is not an array.
        ValueError: for NaN or Inf, a mask of another shape, an unknown kind, groups that do not
            divide the outputs, a window with a side of 0.
    """
    import scipy.sparse as sp

    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    if kind == "matmul" and groups != 1:
        raise ValueError(f"groups={groups} is for kind='conv'")
    matrix = as_scipy("w", w)
    if sp.issparse(matrix):
        if kind != "matmul" or mask is not None:
            raise ValueError(
                f"w is a sparse {type(w).__name__}, which takes kind='matmul' and no mask; "
                "w.todense() takes both"
            )
        found = _from_scipy(matrix)
        return found if w is matrix else found.astype(_kept_dtype(w))
    weight = _array(w, 2 if kind == "matmul" else 4)
    kept = weight != 0
    if mask is not None:
        check_concrete("mask", mask)
        check_dense("mask", mask)
        kept = np.asarray(mask)
        if kept.shape != weight.shape or kept.dtype != np.bool_:
            raise ValueError(
                f"mask is {kept.dtype}{list(kept.shape)}; it takes bool{list(weight.shape)}"
            )
    if kind == "matmul":
        return _build(weight.T, kept.T, None, 1, kind)
    outputs, window = weight.shape[3], (weight.shape[0], weight.shape[1])
    if min(window) < 1:
        raise ValueError(f"w has shape {weight.shape}: a window has sides of 1 or more")
    groups = check_positive("groups", groups)
    if outputs % groups:
        raise ValueError(f"groups={groups} does not divide {outputs} outputs")
    by_output = (3, 2, 0, 1)
    columns = math.prod(weight.shape[:3])
    rows = weight.transpose(by_output).reshape(outputs, columns)
    return _build(rows, kept.transpose(by_output).reshape(rows.shape), window, groups, kind)


def _array(w: Any, rank: int) -> np.ndarray:
    check_concrete("w", w)
    check_dense("w", w, "a dense numpy or jax array, or a sparse matrix (scipy, BCOO, BCSR)")
    if not hasattr(w, "shape") or not hasattr(w, "dtype") or len(w.shape) != rank:
        shape = getattr(w, "shape", None)
        other = {4: "matmul", 2: "conv"}[rank]
        fits = shape is not None and len(shape) == {"matmul": 2, "conv": 4}[other]
        raise TypeError(
            f"w must be an array with {rank} axes, not {type(w).__name__} of shape {shape}"
            + (f": pass kind={other!r} for it" if fits else "")
        )
    weight = np.asarray(w)
    if weight.dtype == np.float64:
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused below as Inf
            weight = weight.astype(np.float32)
    if weight.dtype not in FLOATS:
        raise TypeError(
            f"w has dtype {weight.dtype}; it takes float32, bfloat16 or float16: "
            "w.astype('float32') makes one"
        )
    if not np.isfinite(weight if weight.dtype.kind == "f" else weight.astype(np.float32)).all():
        raise ValueError("w holds NaN or Inf")
    return weight


def _build(
    rows: np.ndarray, kept: np.ndarray, window: tuple[int, int] | None, groups: int, kind: Kind
) -> PrunedWeight:
    """From [n_out, columns of one group]."""
    if window is not None and window[0] * window[1] > MAX_TAPS:
        raise ValueError(f"w has a window of {window[0]}x{window[1]}; a plan takes {MAX_TAPS} taps")
    lengths = kept.sum(1, dtype=np.int64)
    if lengths.sum() > MAX_ENTRIES:
        raise ValueError(f"w keeps {lengths.sum()} weights; a plan takes fewer than 2^31")
    outputs, columns = np.nonzero(kept)
    values = rows[outputs, columns]
    per_group = rows.shape[1]
    columns = columns + outputs // max(len(rows) // groups, 1) * per_group
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    pattern = Pattern(per_group * groups, len(rows), indptr, columns, window, groups)
    # jnp.asarray compiles a copy for each number of values, and JAX keeps what it compiled.
    return PrunedWeight(jax.device_put(values), Plan(pattern, kind))


def _from_scipy(w: Any) -> PrunedWeight:
    import scipy.sparse as sp

    if len(w.shape) != 2:
        raise TypeError(f"w must have 2 axes; a {type(w).__name__} of shape {w.shape} has not")
    if np.iscomplexobj(w) or not (np.issubdtype(w.dtype, np.number) or w.dtype == np.bool_):
        raise TypeError(f"w has dtype {w.dtype}; it takes real numbers")
    _check_indices(w)
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below as Inf
        csr: Any = sp.csr_matrix(w.T, dtype=np.float32, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    if not np.isfinite(csr.data).all():
        raise ValueError("w holds NaN or Inf")
    pattern = Pattern(csr.shape[1], csr.shape[0], csr.indptr, csr.indices)
    return PrunedWeight(jax.device_put(csr.data), Plan(pattern, "matmul"))


def _kept_dtype(w: Any) -> Any:
    """That of a jax matrix, where kernels have it."""
    return w.dtype if w.dtype in FLOATS else np.dtype(np.float32)


def _check_indices(w: Any) -> None:
    """scipy itself does not look whether the indices lie inside before it converts."""
    if w.format in ("csr", "csc"):
        minor = w.shape[1] if w.format == "csr" else w.shape[0]
        found = [(w.indices, minor)]
        if w.indptr[0] != 0 or (np.diff(w.indptr) < 0).any() or w.indptr[-1] > len(w.indices):
            raise ValueError("w's indptr does not ascend from 0 to the number of entries")
    elif w.format == "coo":
        found = list(zip(w.coords, w.shape, strict=True))
    else:
        return _check_indices(w.tocoo())
    for indices, limit in found:
        if len(indices) and (indices.min() < 0 or indices.max() >= limit):
            raise ValueError(f"w has an index out of range; it needs 0 <= index < {limit}")


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What inspection found of a pattern; print it.

    `imbalance` is the work of the heaviest of 8 parts over the mean, after the outputs are shared
    out; None below 128 outputs, which are too few for 8 parts. `vector_fill` is how full the blocks
    of 8 outputs x 1 input are that hold a weight, `used_columns` the share of columns that an
    output uses.
    """

    kept: int
    sparsity: float
    shortest: int
    longest: int
    mean: float
    empty_rows: int
    imbalance: float | None
    vector_fill: float
    used_columns: float

    def __str__(self) -> str:
        uneven = self.imbalance
        parts = "" if uneven is None else f"8 parts within {100 * (uneven - 1):.1f} % of the mean; "
        return (
            f"{self.kept} kept, {100 * self.sparsity:.1f} % pruned; an output has {self.shortest} "
            f"to {self.longest} (mean {self.mean:.1f}, {self.empty_rows} have none); "
            f"{parts}blocks of 8 x 1 {100 * self.vector_fill:.0f} % full; "
            f"{100 * self.used_columns:.0f} % of the inputs used"
        )


def statistics(pruned: PrunedWeight) -> Statistics:
    """Statistics of the pattern of a pruned weight.

    Args:
        pruned: from `js.pruned.inspect`.

    Returns:
        A `Statistics`; print it.

    Raises:
        TypeError: when `pruned` is not a `PrunedWeight`.
    """
    if not isinstance(pruned, PrunedWeight):
        raise TypeError(
            f"pruned must be a PrunedWeight, not {type(pruned).__name__}: js.pruned.inspect makes "
            "one"
        )
    p = pruned.pattern
    lengths = p.lengths if p.n_out else np.zeros(1, np.int64)
    blocks = len(np.unique(p.rows // 8 * np.int64(max(p.n_in, 1)) + p.indices))
    return Statistics(
        p.entries,
        pruned.sparsity,
        int(lengths.min()),
        int(lengths.max()),
        float(lengths.mean()),
        int((p.lengths == 0).sum()),
        imbalance(p.lengths, _PARTS) if p.n_out >= _PARTS * UNIT else None,
        p.entries / (8 * blocks) if blocks else 0.0,
        len(np.unique(p.indices)) / p.n_in if p.n_in else 0.0,
    )
