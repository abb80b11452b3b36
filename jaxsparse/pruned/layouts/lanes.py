"""Packing for the lanes executor on CUDA: an output a lane, entries in an order that spares banks.

A block serves `32 * strips` outputs and one of `parts` ranges of the inputs. Blocks take the
outputs by their kept weights, the most first; within a block and a part they are sorted by what
they keep there and dealt out, 32 to a strip. The 16 / strips warps of a strip, its teams, take the
entries of an output in turn. Entries lie four to a lane, step by step, team by team. Where an
entry's input lies in shared memory is known, and so are its banks: in step s a lane takes, as far
as it can, an input of bank class `(s + lane) % classes`.
"""

from dataclasses import dataclass

import numpy as np

WARPS = 16  # of a block
QUAD = 4
PARTS = STRIPS = (1, 2, 4, 8)
MOST_INPUTS = 65536  # of a part: 16 bits name them
_BANK_BYTES = 128


@dataclass(frozen=True)
class LanesPack:
    """Entries of a weight matrix in the order in which lanes read them.

    Attributes:
        starts: int32[blocks * strips + 1]: the step at which a strip's entries begin.
        indices: uint16[e]: where input i of its part lies: i / 8-th of the i % 8-th eighth.
        rows: int32: the outputs of each group of blocks (-1 for none), then, for each block, the
            output of each lane among its group's.
        order: int32[e]: position of each entry among the kept weights, -1 for padding.
    """

    starts: np.ndarray
    indices: np.ndarray
    rows: np.ndarray
    order: np.ndarray


def load_bytes(rows: int) -> int:
    """Of one load from shared memory: 1 row as a float, 2 to 8 rows of 16 bits."""
    return 4 if rows <= 2 else 8 if rows <= 4 else 16


def input_bytes(rows: int) -> int:
    """Shared memory of an input."""
    return load_bytes(rows) * (2 if rows > 8 else 1)


def part_inputs(n_in: int, parts: int) -> int:
    """Inputs of a part: a multiple of 8."""
    return -(-n_in // (8 * parts)) * 8


def pack_lanes(
    indptr: np.ndarray, indices: np.ndarray, n_in: int, *, strips: int, parts: int, rows: int
) -> LanesPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs, a multiple of 8.
        strips: of a block.
        parts: ranges of the inputs.
        rows: rows of x, 1 to 16.

    Returns:
        The packed arrays.
    """
    n, inputs, teams, width = (
        len(indptr) - 1,
        part_inputs(n_in, parts),
        WARPS // strips,
        32 * strips,
    )
    lengths = np.diff(indptr).astype(np.int64)
    groups = -(-n // width)
    outputs = np.full(groups * width, -1, np.int64)
    outputs[:n] = np.argsort(-lengths, kind="stable")
    group_place = np.empty(n, np.int64)
    group_place[outputs[:n]] = np.arange(n)
    at_output = np.repeat(group_place, lengths)
    part, local = np.divmod(indices.astype(np.int64), max(inputs, 1))
    row = (at_output // width * parts + part) * width + at_output % width
    counts = np.bincount(row, minlength=groups * parts * width).reshape(-1, width)
    by_size = np.argsort(-counts, axis=1, kind="stable")
    place = np.empty_like(by_size)
    np.put_along_axis(place, by_size, np.arange(width)[None], axis=1)
    lane_of = (np.arange(len(counts))[:, None] * width + place).reshape(-1)[row]
    sizes = np.take_along_axis(counts, by_size, axis=1).reshape(-1)
    quads = -(-sizes.reshape(-1, 32)[:, 0] // (QUAD * teams))
    starts = np.concatenate([[0], np.cumsum(quads)])
    where = local % 8 * (inputs // 8) + local // 8
    turn = _turns(lane_of, sizes, where, _BANK_BYTES // load_bytes(rows), teams)
    strip, lane = np.divmod(lane_of, 32)
    step, team = np.divmod(turn, teams)
    at = (((starts[strip] + step // QUAD) * teams + team) * 32 + lane) * QUAD + step % QUAD
    size = max(1, int(starts[-1])) * teams * 32 * QUAD
    order, numbers = np.full(size, -1, np.int32), np.zeros(size, np.uint16)
    order[at] = np.arange(len(indices))
    numbers[at] = where
    listed = np.concatenate([outputs, by_size.reshape(-1)]).astype(np.int32)
    return LanesPack(starts.astype(np.int32), numbers, listed, order)


def _turns(
    lane_of: np.ndarray, sizes: np.ndarray, where: np.ndarray, classes: int, teams: int
) -> np.ndarray:
    """When each entry of a lane is taken: one of the wanted class while the lane has such, else one
    of the class of which it has the most.
    """
    lanes = len(sizes)
    if classes * 4 > _BANK_BYTES // 2:  # single words: there are too many classes to keep in step
        classes = 1
    key = lane_of * classes + where % classes
    left = np.bincount(key, minlength=lanes * classes).reshape(lanes, classes)
    taken = []
    active = np.arange(lanes)
    for turn in range(int(sizes.max(initial=0))):
        active = active[sizes[active] > turn]
        wanted = (turn // teams + active) % classes
        mine = left[active]
        pick = np.where(mine[np.arange(len(active)), wanted] > 0, wanted, mine.argmax(1))
        left[active, pick] -= 1
        taken.append((active * classes + pick, np.full(len(active), turn)))
    turns = np.empty(len(lane_of), np.int64)
    if taken:
        picked, when = (np.concatenate(arrays) for arrays in zip(*taken, strict=True))
        turns[np.argsort(key, kind="stable")] = when[np.argsort(picked, kind="stable")]
    return turns
