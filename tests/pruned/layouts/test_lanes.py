"""Packing for the lanes executor: unpacked as the kernel reads it, it is the weight again."""

import numpy as np
import pytest

from jaxsparse.pruned.layouts.lanes import (
    PARTS,
    QUAD,
    STRIPS,
    WARPS,
    load_bytes,
    pack_lanes,
    part_inputs,
)


def pattern(rng, n, k, sparsity):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    return kept, indptr, np.nonzero(kept)[1].astype(np.int32)


def unpack(pack, shape, values, strips, parts):
    """The dense matrix that the kernel multiplies with."""
    n, k = shape
    inputs, width, teams = part_inputs(k, parts), 32 * strips, WARPS // strips
    groups = -(-n // width)
    outputs, lanes = pack.rows[: groups * width], pack.rows[groups * width :]
    assert sorted(outputs[outputs >= 0]) == list(range(n))
    dense = np.zeros((n, parts * inputs), np.float32)
    padded = np.concatenate([values, [0]]).astype(np.float32)[pack.order]
    for stream in range(groups * parts * strips):
        group, part = divmod(stream // strips, parts)
        for step in range(pack.starts[stream], pack.starts[stream + 1]):
            for team, lane in np.ndindex(teams, 32):
                output = outputs[group * width + lanes[stream * 32 + lane]]
                first = ((step * teams + team) * 32 + lane) * QUAD
                for e in range(first, first + QUAD):
                    eighth, place = divmod(int(pack.indices[e]), inputs // 8)
                    if output < 0:
                        assert pack.order[e] == -1
                    else:
                        dense[output, part * inputs + 8 * place + eighth] += padded[e]
    assert not dense[:, k:].any()
    return dense[:, :k]


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("strips", STRIPS)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(("n", "k", "sparsity"), [(70, 64, 0.9), (20, 200, 0.5), (3, 8, 1.0)])
def test_unpacked_it_is_the_weight(rng, n, k, sparsity, parts, strips, rows):
    kept, indptr, indices = pattern(rng, n, k, sparsity)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    pack = pack_lanes(indptr, indices, k, strips=strips, parts=parts, rows=rows)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    np.testing.assert_array_equal(unpack(pack, (n, k), values, strips, parts), dense)
    assert pack.indices.dtype == np.uint16


def test_little_is_filled_in(rng):
    _, indptr, indices = pattern(rng, 1024, 4096, 0.9)
    pack = pack_lanes(indptr, indices, 4096, strips=1, parts=1, rows=1)
    assert len(pack.order) <= 1.12 * len(indices)


def test_lanes_that_load_together_meet_fewer_banks_than_by_chance(rng):
    _, indptr, indices = pattern(rng, 256, 2048, 0.9)
    pack = pack_lanes(indptr, indices, 2048, strips=8, parts=1, rows=8)
    assert load_bytes(8) == 16
    groups = pack.indices.reshape(-1, 4, 8, QUAD).transpose(0, 1, 3, 2).reshape(-1, 8) % 8
    most = np.mean([np.bincount(g, minlength=8).max() for g in groups])
    assert most <= 1.6  # eight at random: 2.6
