"""Packing for the split executor on CUDA: quads of an output's entries, a stream a warp.

A block serves a group of outputs, in rounds, and one of the ranges of the inputs. What an output
keeps in a range is cut into quads, at least one; the outputs of a round are dealt to the warps by
size, back and forth. A warp's quads of all rounds follow each other.
"""

from dataclasses import dataclass

import numpy as np

WARPS = 32
ROWS = (1, 2, 4)  # of a lane
INPUTS = (128, 256)  # of a block
OUTPUTS = (16, 32, 64, 128)  # of a round
MOST_PARTS = 8
_RING_BYTES = 2 * 16 * 24  # of a warp's ring


@dataclass(frozen=True)
class SplitShape:
    """Tunables: rows of a lane, inputs of a block, outputs of a round, rounds of a group."""

    rows: int
    inputs: int
    outputs: int
    rounds: int

    def shared_bytes(self, n_in: int) -> int:
        """Shared memory of a block: a tile of x, the rings, and twice what its rows get in a round
        from every block.
        """
        tile, parts = 32 * self.rows, self.parts(n_in)
        panel = -(-tile * (self.inputs + 1) * 4 // 16) * 16
        sums = parts * self.outputs * (-(-tile // parts) | 1)
        return panel + WARPS * _RING_BYTES + 2 * sums * 4

    def parts(self, n_in: int) -> int:
        """Blocks of a cluster."""
        return max(1, -(-n_in // self.inputs))

    def groups(self, n_out: int) -> int:
        """Groups of outputs."""
        return -(-n_out // (self.outputs * self.rounds))


@dataclass(frozen=True)
class SplitPack:
    """Entries of a weight matrix, stream by stream; a stream is a warp's of a group and part.

    Attributes:
        starts: int32[groups * parts * WARPS]: the quad at which each stream begins.
        places: uint16[quads * 4]: the byte at which the entry's input lies in its range, in the
            lower 11 bits of the first and third of a quad, the upper 11 of the others. A quad that
            is its output's last has bit 11 of the first, and which output of the round that is
            in the upper 5 bits of the third and the lower 3 of the fourth.
        counts: uint8[groups * parts * rounds * WARPS * 2]: quads of each round, 16 bits each.
        order: int32[quads * 4]: position of each entry among the kept weights, -1 for padding.
    """

    starts: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    order: np.ndarray


def pack_split(indptr: np.ndarray, indices: np.ndarray, n_in: int, shape: SplitShape) -> SplitPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs, at most MOST_PARTS * shape.inputs.
        shape: the tunables.

    Returns:
        The packed arrays.
    """
    n, parts, per = len(indptr) - 1, shape.parts(n_in), shape.outputs * shape.rounds
    groups = shape.groups(n)
    outputs = np.repeat(np.arange(n), np.diff(indptr))
    run = outputs * parts + indices // shape.inputs  # ascending
    kept = np.bincount(run, minlength=n * parts)
    quads = np.maximum(1, -(-kept // 4))
    output, part = np.divmod(np.arange(n * parts), parts)
    unit = output // per * parts + part  # group and part
    turn, place = np.divmod(output % per, shape.outputs)
    team = unit * shape.rounds + turn
    by_size = np.lexsort((-quads, team))
    rank = np.empty(n * parts, np.int64)
    first = np.searchsorted(team[by_size], np.arange(groups * parts * shape.rounds))
    rank[by_size] = np.arange(n * parts) - first[team[by_size]]
    forth = rank % (2 * WARPS)
    warp = np.minimum(forth, 2 * WARPS - 1 - forth)
    stream = unit * WARPS + warp
    in_order = np.lexsort((rank, turn, stream))
    length = np.bincount(stream, quads, groups * parts * WARPS).astype(np.int64)
    length += length % 2  # streams begin at even quads
    starts = np.cumsum(length) - length
    before = np.cumsum(quads[in_order]) - quads[in_order]
    lead = np.searchsorted(stream[in_order], stream[in_order])  # the first run of the same stream
    at = np.empty(n * parts, np.int64)
    at[in_order] = starts[stream[in_order]] + before - before[lead]
    total = max(2, int(length.sum()))
    places = np.full((total, 4), shape.inputs * 4, np.uint16)
    order = np.full(total * 4, -1, np.int32)
    begin = np.cumsum(kept) - kept
    to = at[run] * 4 + np.arange(len(run)) - begin[run]
    order[to] = np.arange(len(run), dtype=np.int32)
    places.reshape(-1)[to] = indices % shape.inputs * 4
    places[:, 1::2] <<= 5
    last = at + quads - 1
    places[last, 0] |= 1 << 11
    places[last, 2] |= (place % 32 << 11).astype(np.uint16)
    places[last, 3] |= (place // 32).astype(np.uint16)
    counts = np.bincount(
        (unit * shape.rounds + turn) * WARPS + warp, quads, groups * parts * shape.rounds * WARPS
    )
    return SplitPack(
        starts.astype(np.int32), places.reshape(-1), counts.astype(np.uint16).view(np.uint8), order
    )
