"""Packing for the pairs executor: fragments, expanded as a lane expands them, are the weight."""

import numpy as np
import pytest

from jaxsparse.pruned.layouts.pairs import INPUTS, OUTPUTS, PIECE, TILES, pack_pairs


def expand(pack, n, k, values, tiles):
    """The weight, fragment by fragment, in the layout of m16n8k16."""
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    strips = -(-n // OUTPUTS)
    dense = np.zeros((strips * OUTPUTS, pack.items * tiles * INPUTS), np.float32)
    for strip, item in np.ndindex(strips, pack.items):
        number = strip * pack.items + item
        at = pack.starts[number] * PIECE
        for tile, lane, bit in np.ndindex(tiles, 32, 32):
            g, t = divmod(lane, 4)
            if not int(pack.indices[(number * tiles + tile) * 32 + lane]) >> bit & 1:
                continue
            half, step, register = bit // 16, bit % 16 // 4, bit % 4
            row = strip * OUTPUTS + g + 8 * (register % 2)
            column = 64 * half + 16 * t + 4 * step + 2 * (register // 2)
            column += (item * tiles + tile) * INPUTS
            dense[row, column : column + 2] = padded[at : at + 2]
            at += 2
        assert at <= pack.starts[number + 1] * PIECE
    assert not dense[n:].any()
    assert not dense[:, k:].any()
    return dense[:n, :k]


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize(
    ("n", "k", "sparsity"), [(16, 64, 0.5), (37, 200, 0.9), (20, 1032, 0.0), (3, 8, 1.0)]
)
def test_expanded_it_is_the_weight(rng, n, k, sparsity, tiles):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    values = rng.standard_normal(kept.sum()).astype(np.float32)
    pack = pack_pairs(indptr, np.nonzero(kept)[1].astype(np.int32), k, tiles)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    np.testing.assert_array_equal(expand(pack, n, k, values, tiles), dense)
    assert np.diff(pack.starts).max(initial=0) == pack.largest
    assert pack.indices.dtype == np.uint32


def test_bytes_are_half_a_bit_a_weight_and_the_pairs(rng):
    kept = rng.random((512, 1024)) >= 0.9
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    pack = pack_pairs(indptr, np.nonzero(kept)[1].astype(np.int32), 1024, 4)
    pairs = kept.reshape(512, 512, 2).any(-1).sum()
    size = pack.indices.nbytes + 2 * len(pack.order) + pack.starts.nbytes
    assert size <= 1.01 * (kept.size / 16 + 4 * pairs)
