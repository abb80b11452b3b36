"""Packing for the vectors executor: the steps, multiplied as a warp does, are the weight again."""

import numpy as np
import pytest

from jaxsparse.pruned.prune import magnitude
from jaxsparse.pruned.vectors import CHUNK_BYTES, GROUPS, OUTPUTS, WARPS, pack_vectors


def unpack(pack, shape, values, element_bytes):
    """The dense matrix that the kernel multiplies with."""
    n, k = shape
    quads, chunk = 8 // element_bytes, CHUNK_BYTES // element_bytes
    slabs, chunks = -(-n // (OUTPUTS * GROUPS * WARPS)), max(1, -(-k // chunk))
    dense = np.zeros((slabs * OUTPUTS * GROUPS * WARPS, chunks * chunk), np.float32)
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    weights = padded.reshape(-1, OUTPUTS, 4, quads)
    offsets = pack.indices.reshape(-1, 4, quads).astype(np.int64)
    counts = pack.extra.reshape(slabs, chunks, WARPS, GROUPS)
    for slab, warp in np.ndindex(slabs, WARPS):
        step = pack.starts[slab * WARPS + warp]
        for c, j in np.ndindex(chunks, GROUPS):
            first = ((slab * WARPS + warp) * GROUPS + j) * OUTPUTS
            for _ in range(counts[slab, c, warp, j]):
                for g, t, q in np.ndindex(OUTPUTS, 4, quads):
                    offset = offsets[step, t, q]
                    assert offset % element_bytes == 0
                    column = c * chunk + offset // element_bytes
                    dense[first + g, column] += weights[step, g, t, q]
                step += 1
    assert not dense[n:].any()
    assert not dense[:, k:].any()
    return dense[:n, :k]


@pytest.mark.parametrize(
    ("n", "k", "sparsity"),
    [(64, 600, 0.9), (300, 256, 0.95), (7, 16, 0.0), (16, 8, 1.0), (600, 64, 0.9)],
)
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_unpacked_it_is_the_weight(rng, n, k, sparsity, element_bytes):
    w = rng.standard_normal((k, n)).astype(np.float32)
    kept = magnitude(w, sparsity, (1, 8)).T
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    values = w.T[kept]
    pack = pack_vectors(indptr, np.nonzero(kept)[1].astype(np.int32), k, element_bytes)
    np.testing.assert_array_equal(unpack(pack, (n, k), values, element_bytes), w.T * kept)
    assert pack.indices.dtype == np.uint16


def test_a_vector_pattern_takes_an_eighth_of_the_columns(rng):
    w = rng.standard_normal((1024, 512)).astype(np.float32)
    kept = magnitude(w, 0.95, (1, 8)).T
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    pack = pack_vectors(indptr, np.nonzero(kept)[1].astype(np.int32), 1024, 4)
    assert pack.columns == kept.sum() // 8


def test_quads_meet_no_bank_twice_where_they_can(rng):
    kept = np.zeros((8, 256), bool)
    kept[:, rng.permutation(256)[:64]] = True
    columns = np.nonzero(kept[0])[0]
    indptr = np.arange(9) * 64
    pack = pack_vectors(indptr, np.tile(columns, 8), 256, 4)
    banks = pack.indices.reshape(-1, 4, 2).transpose(0, 2, 1).reshape(-1, 4) // 4 % 4
    full = min(np.bincount(columns % 4, minlength=4))
    assert all(len(set(quad)) == 4 for quad in banks[:full])
