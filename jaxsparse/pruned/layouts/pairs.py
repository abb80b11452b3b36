"""Packing for the pairs executor on CUDA: tiles of 16 outputs x 128 inputs as fragments, one bit a
register.

A register of a 16-bit fragment holds two neighbouring inputs of one output. A pair that keeps one
of them, or both, is stored whole, with a zero for the other: its bit says that it is. A tile is 32
words, one a lane: bit `16 * half + 4 * step + register` is that register of fragment `step` of the
tile's first or second 64 inputs. An item is some neighbouring tiles of 16 outputs; its pairs follow
each other by tile, lane and bit, and are padded to 16 bytes.
"""

from dataclasses import dataclass

import numpy as np

OUTPUTS, INPUTS = 16, 128  # of a tile
PIECE = 8  # values of 16 bytes
TILES = (1, 2, 4)  # of an item
_WARPS, _STAGES, _TAIL = 8, 2, 128


@dataclass(frozen=True)
class PairsPack:
    """Weights as a bitmap of pairs, and the pairs.

    Attributes:
        starts: int32[strips * items + 1]: where an item's pairs begin, in pieces of four.
        indices: uint32[strips * items * tiles * 32]: a word a lane.
        order: int32[e]: position of each value among the kept weights, -1 for a zero.
        items: of a strip of 16 outputs.
        largest: pieces of the largest item.
    """

    starts: np.ndarray
    indices: np.ndarray
    order: np.ndarray
    items: int
    largest: int


def pack_pairs(indptr: np.ndarray, indices: np.ndarray, n_in: int, tiles: int) -> PairsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs.
        tiles: of an item.

    Returns:
        The packed arrays.
    """
    n = len(indptr) - 1
    strips, items = -(-n // OUTPUTS), max(1, -(-n_in // (tiles * INPUTS)))
    output = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
    item = output // OUTPUTS * items + indices // (tiles * INPUTS)
    tile = item * tiles + indices % (tiles * INPUTS) // INPUTS
    high, g = np.divmod(output % OUTPUTS, 8)
    half, within = np.divmod(indices % INPUTS, 64)
    t, element = np.divmod(within, 16)
    step, register = element // 4, element % 4 // 2 * 2 + high
    bit = half * 16 + step * 4 + register
    # The place of a pair among all that there could be: by tile, lane and bit.
    slot = (tile * 32 + g * 4 + t) * 32 + bit
    pairs, pair_of = np.unique(slot, return_inverse=True)
    item_of = pairs // (tiles * 1024)
    counts = np.bincount(item_of, minlength=strips * items)
    pieces = -(-counts // (PIECE // 2))
    starts = np.concatenate([[0], np.cumsum(pieces)])
    rank = np.arange(len(pairs)) - np.concatenate([[0], np.cumsum(counts)])[item_of]
    at = starts[item_of] * PIECE + 2 * rank
    order = np.full(max(1, int(starts[-1])) * PIECE, -1, np.int32)
    order[at[pair_of] + indices % 2] = np.arange(len(indices))
    words = np.zeros(strips * items * tiles * 32, np.uint32)
    np.bitwise_or.at(words, pairs // 32, np.uint32(1) << (pairs % 32).astype(np.uint32))
    return PairsPack(starts.astype(np.int32), words, order, items, int(pieces.max(initial=0)))


def shared_bytes(pack: PairsPack, tiles: int, rows: int) -> int:
    """Shared memory of a block: stages of the largest items and of their inputs of x."""
    batches = next(b for b in (1, 2, 4, 8) if rows <= 8 * b or b == 8)
    item = tiles * 128 + 16 * pack.largest
    x = 8 * batches * (tiles * INPUTS * 2 + 16)
    return _STAGES * (x + _WARPS * item) + _TAIL
