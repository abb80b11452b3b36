"""Packing for the vectors executor on CUDA: 8 outputs x 1 input, condensed into tensor-core steps.

A group is 8 neighbouring outputs; its columns are the inputs that one of them keeps. A run is what
a group has in one chunk of inputs: its columns in steps of `4 * quads`, the last one filled up with
zero weights. The four columns of a quad, which lanes read at once, come from different words modulo
four as far as there are such: then no two of them share a bank.
"""

from dataclasses import dataclass

import numpy as np

OUTPUTS = 8  # of a group
GROUPS, WARPS = 4, 16  # of a warp; of a block
CHUNK_BYTES = 1024  # of a row of x


@dataclass(frozen=True)
class VectorsPack:
    """Columns of a weight matrix in the order in which warps read them.

    Attributes:
        starts: int32[slabs * 16]: the step at which each warp's stream begins.
        indices: uint16[steps, 4, quads]: where a column lies in a row of the chunk, in bytes.
        extra: uint8[slabs, chunks, 16, 4]: steps of each run.
        order: int32[steps, 8, 4, quads]: position of each weight among the kept ones, -1 for a
            zero.
        columns: how many there are, without the filling.
    """

    starts: np.ndarray
    indices: np.ndarray
    extra: np.ndarray
    order: np.ndarray
    columns: int


def pack_vectors(
    indptr: np.ndarray, indices: np.ndarray, n_in: int, element_bytes: int
) -> VectorsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs.
        element_bytes: of x: 4 or 2.

    Returns:
        The packed arrays.
    """
    n = len(indptr) - 1
    quads, chunk = 8 // element_bytes, CHUNK_BYTES // element_bytes
    step_columns = 4 * quads
    slabs, chunks = -(-n // (OUTPUTS * GROUPS * WARPS)), max(1, -(-n_in // chunk))
    output = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
    keys, column_of = np.unique(output // OUTPUTS * n_in + indices, return_inverse=True)
    group, column = np.divmod(keys, max(n_in, 1))
    warp, place = np.divmod(group, GROUPS)
    run = (warp * chunks + column // chunk) * GROUPS + place
    offset = column % chunk * element_bytes
    in_run = _spread(run, offset // 4 % 4)
    runs = slabs * WARPS * chunks * GROUPS
    counts = np.bincount(run, minlength=runs)
    steps = -(-counts // step_columns)
    first = np.concatenate([[0], np.cumsum(steps)])
    step = first[run] + in_run // step_columns
    quad, t = np.divmod(in_run % step_columns, 4)
    total = max(1, int(first[-1]))  # a warp without columns reads the first step
    offsets = np.zeros((total, 4, quads), np.uint16)
    offsets[step, t, quad] = offset
    order = np.full((total, OUTPUTS, 4, quads), -1, np.int32)
    entry = np.arange(len(indices))
    order[step[column_of], output % OUTPUTS, t[column_of], quad[column_of]] = entry
    by_chunk = steps.reshape(slabs, WARPS, chunks, GROUPS).transpose(0, 2, 1, 3)
    starts = first[: runs : chunks * GROUPS].astype(np.int32)
    return VectorsPack(
        starts,
        offsets.reshape(-1),
        by_chunk.astype(np.uint8).reshape(-1),
        order.reshape(-1),
        len(keys),
    )


def _spread(run: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """Place of each column in its run: the first of every bank, the second of every bank, ...

    `run` ascends.
    """
    by_bank = np.lexsort((bank, run))
    of = run[by_bank] * 4 + bank[by_bank]
    rank = np.empty(len(run), np.int64)
    rank[by_bank] = _count_up(of)
    sequence = np.lexsort((bank, rank, run))
    place = np.empty(len(run), np.int64)
    place[sequence] = _count_up(run[sequence])
    return place


def _count_up(key: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each run of equal keys."""
    at = np.arange(len(key))
    begins = np.concatenate([[True], key[1:] != key[:-1]]) if len(key) else np.zeros(0, bool)
    return at - np.maximum.accumulate(np.where(begins, at, 0))
