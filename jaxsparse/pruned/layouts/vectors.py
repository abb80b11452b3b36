"""Packing for the vectors executor on CUDA: 8 outputs x 1 input, condensed into tensor-core steps.

A group is 8 neighbouring outputs; its columns are the inputs that one of them keeps. x passes in
chunks through a ring of slots; once a chunk has arrived, a warp takes the steps that are due then,
of `4 * quads` columns each, all of which lie in the last `window` chunks. A step waits until it is
full, as long as its window allows it, and what is missing then are zero weights. The four columns
of a quad, which lanes read at once, come from different words modulo four as far as there are such:
then no two of them share a bank.
"""

from dataclasses import dataclass

import numpy as np

OUTPUTS, WARPS = 8, 16  # of a group; of a block
GROUPS = (1, 2, 4)  # of a warp
ROW_BYTES = 512  # of a chunk
BOX_BYTES, BOX_ROWS = 128, 64  # of which a chunk is made
SLOTS = {4: 6, 2: 4}  # of the ring, by the bytes of an element
WINDOWS = {4: 3, 2: 2}
_CLASSES = 4  # words modulo four


@dataclass(frozen=True)
class VectorsPack:
    """Columns of a weight matrix in the order in which warps read them.

    Attributes:
        starts: int32[slabs * 16]: the step at which each warp's stream begins.
        indices: uint16[steps, 4, quads]: where a column lies in the ring, in elements.
        rows: int32[slabs, 16, groups]: the group of each slot of a warp, -1 for none.
        extra: uint8[slabs, chunks, 16, 4]: steps of each slot that are due at each chunk.
        order: int32[steps, 8, 4, quads]: position of each weight among the kept ones, -1 for a
            zero.
        columns: how many there are, without the filling.
        window: chunks that a step may reach back to, its own included.
    """

    starts: np.ndarray
    indices: np.ndarray
    rows: np.ndarray
    extra: np.ndarray
    order: np.ndarray
    columns: int
    window: int


def place_of(column: np.ndarray, element_bytes: int) -> np.ndarray:
    """Where an input lies in the ring, in elements, if a tile begins in its first slot."""
    box, inside = np.divmod(column, BOX_BYTES // element_bytes)
    boxes = SLOTS[element_bytes] * ROW_BYTES // BOX_BYTES
    return box % boxes * (BOX_ROWS * BOX_BYTES // element_bytes) + inside


def pack_vectors(
    indptr: np.ndarray, indices: np.ndarray, n_in: int, element_bytes: int, groups: int
) -> VectorsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs.
        element_bytes: of x: 4 or 2.
        groups: of 8 outputs, of a warp: one of GROUPS.

    Returns:
        The packed arrays.
    """
    n, quads, window = len(indptr) - 1, 8 // element_bytes, WINDOWS[element_bytes]
    chunk, width = ROW_BYTES // element_bytes, OUTPUTS * groups * WARPS
    slabs, chunks = -(-n // width), max(1, -(-n_in // chunk))
    output = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
    keys, column_of = np.unique(output // OUTPUTS * n_in + indices, return_inverse=True)
    group, column = np.divmod(keys, max(n_in, 1))
    slots = slabs * WARPS * groups
    due, step, place = _steps(group, column, chunk, chunks, 4 * quads, window, slots)
    # Steps in the order of their use: warp by warp, chunk by chunk, slot by slot; a warp's groups
    # are neighbours, whose results are stored together.
    warp, j = np.divmod(group, groups)
    rows = np.where(np.arange(slots) * OUTPUTS < n, np.arange(slots), -1).astype(np.int32)
    key = ((warp * chunks + due) * groups + j) * (len(keys) + 1) + step
    used, step = np.unique(key, return_inverse=True)
    used //= len(keys) + 1
    counts = np.bincount(used, minlength=slabs * WARPS * chunks * groups)
    first = np.concatenate([[0], np.cumsum(counts)])
    extra = np.zeros((slabs, chunks, WARPS, 4), np.uint8)
    extra[..., :groups] = counts.reshape(slabs, WARPS, chunks, groups).transpose(0, 2, 1, 3)
    total = max(1, len(used))  # a warp without columns reads the first step
    quad, t = np.divmod(place, 4)
    places = np.full((total, 4, quads), -1, np.int64)
    places[step, t, quad] = place_of(column, element_bytes)
    order = np.full((total, OUTPUTS, 4, quads), -1, np.int32)
    order[step[column_of], output % OUTPUTS, t[column_of], quad[column_of]] = np.arange(len(output))
    return VectorsPack(
        first[: counts.size : chunks * groups].astype(np.int32),
        _filled(places).astype(np.uint16).reshape(-1),
        rows,
        extra.reshape(-1),
        order.reshape(-1),
        len(keys),
        window,
    )


def _filled(places: np.ndarray) -> np.ndarray:
    """Places of missing columns: that of a column of the step, so that nothing else is read."""
    flat = places.reshape(len(places), -1)
    some = np.maximum(flat.max(1, keepdims=True), 0)
    return np.where(flat < 0, some, flat)


def _steps(
    slot: np.ndarray,
    column: np.ndarray,
    chunk: int,
    chunks: int,
    width: int,
    window: int,
    slots: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chunk at which each column's step is due, the step's number in its slot, and the column's
    place in the step.
    """
    bank = column * (ROW_BYTES // chunk) // 4 % _CLASSES
    queue = slot * _CLASSES + bank  # the columns of a queue are taken in order
    sequence = np.lexsort((column, queue))
    begins = np.searchsorted(queue[sequence], np.arange(slots * _CLASSES)).reshape(slots, -1)
    where = np.concatenate([column[sequence] // chunk, [chunks + window]])
    arrived = np.zeros((slots, _CLASSES), np.int64)
    counts = np.zeros((chunks, slots * _CLASSES), np.int64)
    np.add.at(counts, (column // chunk, queue), 1)
    head, made = np.zeros_like(arrived), np.zeros(slots, np.int64)
    taken_at, taken_step, taken_place = (np.empty(len(slot), np.int64) for _ in range(3))
    for now in range(chunks):
        arrived += counts[now].reshape(arrived.shape)
        oldest = 0 if now + 1 == chunks else now + 2 - window  # what is older leaves the ring
        while True:
            waiting = arrived - head
            total = waiting.sum(1)
            leaves = where[np.where(waiting > 0, begins + head, len(slot))].min(1)
            even = np.minimum(waiting, width // _CLASSES).sum(1) == width
            due = even | (total >= 5 * width) | (leaves < oldest)
            if now + 1 == chunks:
                due = total > 0
            chosen = np.flatnonzero(due & (total > 0))
            if not len(chosen):
                break
            take = _take(waiting[chosen], width)
            at, place = _places(begins[chosen] + head[chosen], take, width)
            taken_at[at], taken_place[at] = now, place
            taken_step[at] = np.repeat(made[chosen], take.sum(1))
            head[chosen] += take
            made[chosen] += 1
    back = np.empty_like(sequence)
    back[sequence] = np.arange(len(sequence))
    return taken_at[back], taken_step[back], taken_place[back]


def _take(waiting: np.ndarray, width: int) -> np.ndarray:
    """How many columns of each class a step takes: as many of each as there are, then of any."""
    take = np.minimum(waiting, width // _CLASSES)
    for i in range(_CLASSES):
        take[:, i] += np.minimum(waiting[:, i] - take[:, i], width - take.sum(1))
    return take


def _places(first: np.ndarray, take: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions, in the sequence, of the columns taken, step by step, and their places: the first
    of every class, the second of every class, ...
    """
    rank = np.arange(width)
    there = rank[None, :, None] < take[:, None, :]
    place = np.cumsum(there.reshape(len(take), -1), axis=1).reshape(there.shape) - 1
    at = first[:, None, :] + rank[None, :, None]
    return at[there], place[there]
