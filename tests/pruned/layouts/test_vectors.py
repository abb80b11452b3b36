"""Packing for the vectors executor: the steps, multiplied as a warp does, are the weight again."""

import numpy as np
import pytest

from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import executor, ranked
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.layouts.vectors import (
    GROUPS,
    OUTPUTS,
    ROW_BYTES,
    WARPS,
    pack_vectors,
    place_of,
)
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.prune import magnitude


def unpack(pack, shape, values, element_bytes, groups):
    """The dense matrix that the kernel multiplies with."""
    n, k = shape
    quads, chunk = 8 // element_bytes, ROW_BYTES // element_bytes
    slabs, chunks = -(-n // (OUTPUTS * groups * WARPS)), max(1, -(-k // chunk))
    dense = np.zeros((slabs * OUTPUTS * groups * WARPS, chunks * chunk), np.float32)
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    weights = padded.reshape(-1, OUTPUTS, 4, quads)
    places = pack.indices.reshape(-1, 4, quads).astype(np.int64)
    counts = pack.extra.reshape(slabs, chunks, WARPS, 4)
    assert not counts[..., groups:].any()
    rows = pack.rows.reshape(slabs, WARPS, groups)
    assert sorted(rows[rows >= 0]) == list(range(-(-n // OUTPUTS)))
    for slab, warp in np.ndindex(slabs, WARPS):
        step = pack.starts[slab * WARPS + warp]
        for c in range(chunks):
            near = np.arange(max(0, c - pack.window + 1) * chunk, (c + 1) * chunk)
            column_at = dict(zip(place_of(near, element_bytes).tolist(), near, strict=True))
            for j in range(groups):
                first = rows[slab, warp, j] * OUTPUTS
                for _ in range(counts[slab, c, warp, j]):
                    for g, t, q in np.ndindex(OUTPUTS, 4, quads):
                        column = column_at[places[step, t, q]]  # it lies in the ring by then
                        dense[first + g, column] += weights[step, g, t, q]
                    step += 1
    assert not dense[n:].any()
    assert not dense[:, k:].any()
    return dense[:n, :k]


@pytest.mark.parametrize(
    ("n", "k", "sparsity"),
    [
        *((64, 600, 0.9), (300, 256, 0.95), (7, 16, 0.0), (16, 8, 1.0), (600, 64, 0.9)),
        (40, 2000, 0.98),
    ],
)
@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize("groups", GROUPS)
def test_unpacked_it_is_the_weight(rng, n, k, sparsity, element_bytes, groups):
    w = rng.standard_normal((k, n)).astype(np.float32)
    kept = magnitude(w, sparsity, (1, 8)).T
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    values = w.T[kept]
    pack = pack_vectors(indptr, np.nonzero(kept)[1].astype(np.int32), k, element_bytes, groups)
    np.testing.assert_array_equal(unpack(pack, (n, k), values, element_bytes, groups), w.T * kept)
    assert pack.indices.dtype == np.uint16


def test_a_vector_pattern_takes_an_eighth_of_the_columns(rng):
    w = rng.standard_normal((1024, 512)).astype(np.float32)
    kept = magnitude(w, 0.95, (1, 8)).T
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    pack = pack_vectors(indptr, np.nonzero(kept)[1].astype(np.int32), 1024, 4, 4)
    assert pack.columns == kept.sum() // 8


def test_quads_meet_no_bank_twice_where_they_can(rng):
    kept = np.zeros((8, 256), bool)
    kept[:, rng.permutation(256)[:64]] = True
    columns = np.nonzero(kept[0])[0]
    indptr = np.arange(9) * 64
    pack = pack_vectors(indptr, np.tile(columns, 8), 256, 4, 1)
    banks = pack.indices.reshape(-1, 4, 2).transpose(0, 2, 1).reshape(-1, 4) % 4
    full = min(np.bincount(columns % 4, minlength=4))
    assert all(len(set(quad)) == 4 for quad in banks[:full])


def test_a_warp_has_neighbours(rng):
    kept = np.repeat(rng.random((128, 1024)) >= 0.9, 8, 0)[:1000]
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))])
    pack = pack_vectors(indptr, np.nonzero(kept)[1], 1024, 4, 4)
    np.testing.assert_array_equal(pack.rows[:125], np.arange(125))
    assert (pack.rows[125:] == -1).all()


def call(rng, n_in, n_out, rows, sparsity, precision="default", width=8):
    """A product whose outputs share their inputs by `width`."""
    kept = np.repeat(rng.random((n_out // width, n_in)) >= sparsity, width, 0)
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))])
    pattern = Pattern(n_in, n_out, indptr, np.nonzero(kept)[1])
    return Problem(pattern, "cuda", (rows, n_in), "float32", "float32", precision)


@pytest.mark.skipif(not built(), reason="this build has no CUDA kernels")
def test_it_comes_first_where_it_won(rng):
    assert ranked(call(rng, 1024, 1024, 4096, 0.9))[0] == "vectors"
    assert ranked(call(rng, 512, 1024, 2048, 0.95))[0] == "vectors"
    assert ranked(call(rng, 512, 1024, 2048, 0.9))[0] == "dense"
    assert ranked(call(rng, 1024, 1024, 1024, 0.98))[0] == "dense"
    assert ranked(call(rng, 1024, 1024, 4096, 0.9, width=1))[0] == "dense"
    assert ranked(call(rng, 1024, 1024, 4096, 0.9, "highest"))[0] != "vectors"


def test_few_rows_take_small_slabs(rng):
    """As many tiles as multiprocessors, before each of them is wide."""
    found = executor("cuda", "vectors")
    for rows, groups in ((2048, 1), (4096, 2), (8192, 4)):
        problem = call(rng, 2048, 512, rows, 0.9)
        assert found.pack(problem, None).tile == groups
        assert found.pack(problem, (2,)).tile == 2
