"""Packing for the runs executor: unpacked as the kernel reads it, it is the weight again."""

import numpy as np
import pytest

from jaxsparse.pruned.layouts.runs import BITS, PARTS, most_warps, pack_runs, part_inputs, place_of


def pattern(rng, n, k, sparsity):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    return kept, indptr, np.nonzero(kept)[1].astype(np.int32)


def places_of(pack, bits):
    """int[blocks, chunks, threads, 16]: where each entry's input lies in its part."""
    threads = 32 * pack.warps
    base = pack.bases.reshape(-1, pack.chunks, threads, 1).astype(np.int64)
    stored = pack.places.reshape(*base.shape[:3], 2 * bits).astype(np.int64)
    if bits == 8:
        return base + stored
    halves = stored.reshape(*base.shape[:3], 2, 1, 4)
    steps = np.concatenate([halves & 15, halves >> 4], 4).reshape(*base.shape[:3], 16)
    return base + steps.cumsum(3)


def unpack(pack, shape, values, bits, parts, rows):
    """The dense matrix that the kernel multiplies with."""
    n, k = shape
    inputs, threads = part_inputs(k, parts), 32 * pack.warps
    assert pack.warps <= most_warps(rows)
    input_at = np.empty(inputs, np.int64)
    input_at[place_of(np.arange(inputs), rows)] = np.arange(inputs)
    places = places_of(pack, bits)
    blocks = len(places)
    starts = pack.starts.reshape(blocks, -1)
    outputs = pack.rows.reshape(blocks // parts, -1)
    assert sorted(outputs[outputs >= 0]) == list(range(n))
    order = pack.order.reshape(blocks, pack.chunks, 2, threads, 8).transpose(0, 1, 3, 2, 4)
    order = order.reshape(blocks, pack.chunks, threads, 16)
    padded = np.concatenate([values, [0]]).astype(np.float32)
    dense = np.zeros((n, parts * inputs), np.float32)
    for block in range(blocks):
        group, part = divmod(block, parts)
        assert starts[block, -1] <= threads
        for output, first, last in zip(
            outputs[group], starts[block], starts[block, 1:], strict=False
        ):
            if output < 0:
                assert (order[block, :, first:last] == -1).all()
                continue
            at = input_at[places[block, :, first:last]] + part * inputs
            np.add.at(dense[output], at, padded[order[block, :, first:last]])
        assert (order[block, :, starts[block, -1] :] == -1).all()
    assert not dense[:, k:].any()
    return dense[:, :k]


@pytest.mark.parametrize("rows", [1, 3, 7, 16])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(
    ("n", "k", "sparsity"),
    [(300, 64, 0.9), (20, 2000, 0.5), (150, 4096, 0.99), (3, 8, 1.0), (1, 128, 0.0)],
)
def test_unpacked_it_is_the_weight(rng, n, k, sparsity, parts, bits, rows):
    kept, indptr, indices = pattern(rng, n, k, sparsity)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    pack = pack_runs(indptr, indices, k, bits=bits, parts=parts, rows=rows)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    np.testing.assert_array_equal(unpack(pack, (n, k), values, bits, parts, rows), dense)
    assert pack.places.dtype == np.uint8
    assert pack.bases.dtype == np.uint16


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_places_are_a_permutation_of_eights(rows):
    places = place_of(np.arange(256), rows)
    np.testing.assert_array_equal(np.sort(places.reshape(-1, 8), 1).reshape(-1), np.arange(256))


def test_more_outputs_than_threads_are_refused(rng):
    _, indptr, indices = pattern(rng, 8192, 64, 0.98)
    assert pack_runs(indptr, indices, 64, bits=8, parts=8, rows=8).warps > 0
    _, indptr, indices = pattern(rng, 8200, 64, 0.98)
    with pytest.raises(ValueError, match="8200 outputs"):
        pack_runs(indptr, indices, 64, bits=8, parts=8, rows=8)
    assert pack_runs(indptr, indices, 64, bits=8, parts=4, rows=8).warps > 0


def test_random_patterns_leave_little_padding(rng):
    _, indptr, indices = pattern(rng, 2048, 2048, 0.9)
    pack = pack_runs(indptr, indices, 2048, bits=8, parts=1, rows=1)
    assert pack.order.size <= 1.25 * len(indices)
