"""Packing for the bitmap executor on CUDA: tiles of 16 outputs x 64 inputs as fragments.

A tile is 32 words, one a lane: bit `8 * step + 2 * register + half` says whether the weight that
the lane holds there (fragment of a 16 x 16 product, four steps a tile) is kept. The kept values
follow each other by lane, within a lane by bit; a tile's values are padded to 16 bytes.
"""

from dataclasses import dataclass

import numpy as np

OUTPUTS, INPUTS = 16, 64
PIECE = 8  # values of 16 bytes


@dataclass(frozen=True)
class BitmapPack:
    """Weights as a bitmap and their kept values.

    Attributes:
        starts: int32[strips * tiles + 1]: where a tile's values begin, in pieces of eight.
        indices: uint32[strips * tiles * 32]: a word a lane.
        order: int32[e]: position of each value among the kept weights, -1 for padding.
        tiles: of a strip of 16 outputs.
        largest: pieces of the largest tile.
    """

    starts: np.ndarray
    indices: np.ndarray
    order: np.ndarray
    tiles: int
    largest: int


def pack_bitmap(indptr: np.ndarray, indices: np.ndarray, n_in: int) -> BitmapPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs.

    Returns:
        The packed arrays.
    """
    n = len(indptr) - 1
    strips, tiles = -(-n // OUTPUTS), max(1, -(-n_in // INPUTS))
    output = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
    tile = output // OUTPUTS * tiles + indices // INPUTS
    high, g = np.divmod(output % OUTPUTS, 8)
    t, element = np.divmod(indices % INPUTS, 16)
    step, within = np.divmod(element, 4)
    register = step * 4 + within // 2 * 2 + high
    # The place of a value among all that there could be: by tile, lane and bit.
    slot = (tile * 32 + g * 4 + t) * 32 + register * 2 + within % 2
    order = np.argsort(slot, kind="stable")
    at = slot[order]
    tile_of = at // 1024
    counts = np.bincount(tile_of, minlength=strips * tiles)
    pieces = -(-counts // PIECE)
    starts = np.concatenate([[0], np.cumsum(pieces)])
    rank = np.arange(len(at)) - np.concatenate([[0], np.cumsum(counts)])[tile_of]
    values = np.full(max(1, int(starts[-1])) * PIECE, -1, np.int32)
    values[starts[tile_of] * PIECE + rank] = order
    words = np.zeros(strips * tiles * 32, np.uint32)
    np.bitwise_or.at(words, at // 32, np.uint32(1) << (at % 32).astype(np.uint32))
    return BitmapPack(starts.astype(np.int32), words, values, tiles, int(pieces.max(initial=0)))
