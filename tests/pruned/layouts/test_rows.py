"""Packing for the data-driven executor: unpacked as the kernel reads it, it is the weight again."""

import numpy as np
import pytest

from jaxsparse.pruned.layouts.quads import QUAD
from jaxsparse.pruned.layouts.rows import deal, pack_rows, tile_offset


def pattern(rng, n, k, sparsity):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    return kept, indptr, np.nonzero(kept)[1].astype(np.int32)


def unpack(pack, shape, values, *, rows, chunk, warps, outputs):
    """The dense matrix that the kernel multiplies with."""
    n, k = shape
    dense = np.zeros((n, pack.chunks * chunk), np.float32)
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    place = {int(tile_offset(i, rows)): i for i in range(chunk + 1)}
    counts = pack.extra.reshape(pack.slabs, pack.chunks, warps, outputs)
    for slab, warp in np.ndindex(pack.slabs, warps):
        quad = pack.starts[slab * warps + warp]
        for c, j in np.ndindex(pack.chunks, outputs):
            output = pack.rows[(slab * warps + warp) * outputs + j]
            for _ in range(counts[slab, c, warp, j]):
                for e in range(quad * QUAD, quad * QUAD + QUAD):
                    column = place[int(pack.indices[e])]
                    if column == chunk:
                        assert padded[e] == 0
                    else:
                        dense[output, c * chunk + column] += padded[e]
                quad += 1
    assert not dense[:, k:].any()
    return dense[:, :k]


@pytest.mark.parametrize(
    ("n", "k", "sparsity"),
    [(64, 256, 0.9), (100, 131, 0.8), (7, 3, 0.5), (33, 700, 0.0), (5, 9, 1.0), (1, 1, 0.0)],
)
@pytest.mark.parametrize(("rows", "chunk"), [(1, 124), (2, 124), (4, 60)])
def test_unpacked_it_is_the_weight(rng, n, k, sparsity, rows, chunk):
    kept, indptr, indices = pattern(rng, n, k, sparsity)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    sizes = {"rows": rows, "chunk": chunk, "warps": 4, "outputs": 4}
    pack = pack_rows(indptr, indices, k, **sizes)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    np.testing.assert_array_equal(unpack(pack, (n, k), values, **sizes), dense)
    assert pack.indices.dtype == np.uint16
    assert len(pack.order) % QUAD == 0


def test_columns_may_come_in_any_order(rng):
    kept, indptr, indices = pattern(rng, 9, 40, 0.5)
    other = rng.permutation(40)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    sizes = {"rows": 1, "chunk": 28, "warps": 2, "outputs": 4}
    pack = pack_rows(indptr, other[indices], 40, **sizes)
    dense = np.zeros((9, 40), np.float32)
    dense[np.nonzero(kept)[0], other[indices]] = values
    np.testing.assert_array_equal(unpack(pack, (9, 40), values, **sizes), dense)


def test_warps_get_equal_work(rng):
    sizes = rng.integers(0, 100, 256)
    slots = deal(sizes, warps=8, outputs=8)
    assert sorted(slots.reshape(-1)) == list(range(256))
    for slab in slots:
        work = sizes[slab].sum(1)
        assert work.max() <= 1.1 * work.mean()


def test_every_output_stays_in_its_slab(rng):
    slots = deal(rng.integers(0, 9, 70), warps=4, outputs=4)
    assert slots.shape == (5, 4, 4)
    for i, slab in enumerate(slots):
        named = slab[slab >= 0]
        assert (named // 16 == i).all()
    assert (slots >= 0).sum() == 70
