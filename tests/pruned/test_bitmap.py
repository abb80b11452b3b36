"""Packing for the bitmap executor: fragments, expanded as a lane expands them, are the weight."""

import numpy as np
import pytest

from jaxsparse.pruned.bitmap import INPUTS, OUTPUTS, PIECE, pack_bitmap


def expand(pack, n, k, values):
    """The weight, fragment by fragment, in the layout of m16n8k16."""
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    strips = -(-n // OUTPUTS)
    dense = np.zeros((strips * OUTPUTS, pack.tiles * INPUTS), np.float32)
    for strip, tile in np.ndindex(strips, pack.tiles):
        at = pack.starts[strip * pack.tiles + tile] * PIECE
        for lane in range(32):
            g, t = divmod(lane, 4)
            word = int(pack.indices[(strip * pack.tiles + tile) * 32 + lane])
            for bit in range(32):
                if not word >> bit & 1:
                    continue
                step, register, half = bit // 8, bit % 8 // 2, bit % 2
                row = strip * OUTPUTS + g + 8 * (register % 2)
                column = 16 * t + 4 * step + 2 * (register // 2) + half
                dense[row, tile * INPUTS + column] = padded[at]
                at += 1
        assert at <= pack.starts[strip * pack.tiles + tile + 1] * PIECE
    assert not dense[n:].any()
    assert not dense[:, k:].any()
    return dense[:n, :k]


@pytest.mark.parametrize(
    ("n", "k", "sparsity"), [(16, 64, 0.5), (37, 200, 0.9), (100, 72, 0.0), (3, 8, 1.0)]
)
def test_expanded_it_is_the_weight(rng, n, k, sparsity):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    values = rng.standard_normal(kept.sum()).astype(np.float32)
    pack = pack_bitmap(indptr, np.nonzero(kept)[1].astype(np.int32), k)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    np.testing.assert_array_equal(expand(pack, n, k, values), dense)
    assert np.diff(pack.starts).max(initial=0) == pack.largest
    assert pack.indices.dtype == np.uint32


def test_bytes_are_a_bit_a_weight_and_the_kept_values(rng):
    kept = rng.random((512, 1024)) >= 0.9
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    pack = pack_bitmap(indptr, np.nonzero(kept)[1].astype(np.int32), 1024)
    size = pack.indices.nbytes + 2 * len(pack.order) + pack.starts.nbytes
    assert size <= 1.05 * (kept.size / 8 + 2 * kept.sum())
