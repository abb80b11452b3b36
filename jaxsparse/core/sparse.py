"""Sparse matrices of jax, as scipy's: what is inspected on the host reads one format."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.core import Tracer

if TYPE_CHECKING:
    from jax.experimental.sparse import BCOO, BCSR
    from scipy.sparse import sparray, spmatrix

    #: A sparse matrix that inspection reads; BCOO and BCSR without batch and dense axes.
    SparseMatrix = sparray | spmatrix | BCOO | BCSR


def is_jax_sparse(value: object) -> bool:
    """Whether `value` is a matrix of `jax.experimental.sparse`."""
    module = sys.modules.get("jax.experimental.sparse")  # there is none before it is imported
    return module is not None and isinstance(value, module.JAXSparse)


def as_scipy(name: str, value: Any) -> Any:
    """A BCOO or BCSR matrix as scipy's COO or CSR, entries that jax pads with left out; anything
    else as it came.

    Raises:
        TypeError: for batch or dense axes, traced entries, or another format, naming the argument.
    """
    if not is_jax_sparse(value):
        return value
    import jax.experimental.sparse as js_sparse
    import scipy.sparse as sp

    kind = type(value).__name__
    if not isinstance(value, (js_sparse.BCOO, js_sparse.BCSR)):
        raise TypeError(
            f"{name} is a sparse {kind}; it takes BCOO, BCSR, a scipy matrix or a dense array: "
            "jax.experimental.sparse.BCOO.fromdense makes one"
        )
    if value.n_batch or value.n_dense or len(value.shape) != 2:
        raise TypeError(
            f"{name} is a {kind} of shape {tuple(value.shape)} with n_batch={value.n_batch}, "
            f"n_dense={value.n_dense}; it takes a matrix without batch and dense axes"
        )
    if any(isinstance(leaf, Tracer) for leaf in (value.data, value.indices)):
        raise TypeError(f"{name} is traced: this is done once, outside of jit, on concrete arrays")
    data = np.asarray(value.data)
    if data.dtype.kind not in "biufc":  # bfloat16 and smaller ones, which scipy does not have
        data = data.astype(np.float32)
    if isinstance(value, js_sparse.BCOO):
        rows, columns = np.asarray(value.indices).T
    else:
        starts = np.asarray(value.indptr)
        rows = np.repeat(np.arange(value.shape[0]), np.diff(starts))
        columns = np.asarray(value.indices)[: len(rows)]
        data = data[: len(rows)]
    inside = (rows < value.shape[0]) & (columns < value.shape[1])
    return sp.coo_matrix((data[inside], (rows[inside], columns[inside])), value.shape)
