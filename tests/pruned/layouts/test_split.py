"""Packing for the split executor: read as the kernel reads it, it is the weight again."""

import numpy as np
import pytest

from jaxsparse.core.device import MOST_SHARED_BYTES
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.split import SPLIT_EXECUTOR
from jaxsparse.pruned.layouts.split import MOST_PARTS, WARPS, SplitShape, pack_split
from jaxsparse.pruned.pattern import Pattern


def pattern(rng, n, k, density):
    kept = rng.random((n, k)) < density
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    return indptr, np.nonzero(kept)[1].astype(np.int32)


def unpack(pack, shape, values, n, k):
    """The dense matrix that the kernel multiplies with."""
    parts, per = shape.parts(k), shape.outputs * shape.rounds
    units = shape.groups(n) * parts
    quads = np.concatenate([values, [0]])[pack.order].reshape(-1, 4)
    fields = pack.places.reshape(-1, 4).astype(np.int64)
    inputs = np.stack(
        [fields[:, 0] & 0x7FF, fields[:, 1] >> 5, fields[:, 2] & 0x7FF, fields[:, 3] >> 5], 1
    )
    assert not (inputs % 4).any()
    inputs //= 4
    assert (inputs[pack.order.reshape(-1, 4) < 0] == shape.inputs).all()
    last, output = fields[:, 0] >> 11 & 1, fields[:, 2] >> 11 | (fields[:, 3] & 7) << 5
    counts = pack.counts.view(np.uint16).reshape(units, shape.rounds, WARPS)
    dense = np.zeros((n, parts, shape.inputs + 1))
    seen = np.zeros((n, parts), int)
    for unit, warp in np.ndindex(units, WARPS):
        group, part = divmod(unit, parts)
        quad = pack.starts.reshape(units, WARPS)[unit, warp]
        assert quad % 2 == 0  # a stream begins at 16 bytes of places
        for turn in range(shape.rounds):
            waiting = []
            for _ in range(counts[unit, turn, warp]):
                waiting.append(quad)
                if last[quad]:
                    to = group * per + turn * shape.outputs + output[quad]
                    for q in waiting:
                        np.add.at(dense[to, part], inputs[q], quads[q])
                    seen[to, part] += 1
                    waiting = []
                quad += 1
            assert not waiting
    assert (seen == 1).all()
    return dense[:, :, : shape.inputs].reshape(n, -1)[:, :k]


@pytest.mark.parametrize(
    ("n", "k", "density"),
    [(40, 300, 0.1), (130, 128, 0.05), (17, 512, 0.4), (1, 4, 1.0), (70, 900, 0.02), (33, 36, 0.0)],
)
@pytest.mark.parametrize("shape", [(1, 256, 16, 1), (4, 128, 32, 2), (2, 256, 128, 3)])
def test_it_is_the_weight(rng, n, k, density, shape):
    shape, entries = SplitShape(*shape), pattern(rng, n, k, density)
    values = rng.standard_normal(len(entries[1]))
    dense = np.zeros((n, k))
    dense[np.repeat(np.arange(n), np.diff(entries[0])), entries[1]] = values
    pack = pack_split(*entries, k, shape)
    assert pack.order.shape == pack.places.shape
    np.testing.assert_array_equal(unpack(pack, shape, values, n, k), dense)


@pytest.mark.parametrize(("n", "k", "rows"), [(512, 2048, 49), (64, 32, 1), (1000, 516, 2000)])
def test_every_candidate_fits(rng, n, k, rows):
    indptr, indices = pattern(rng, n, k, 0.1)
    call = Problem(
        Pattern(k, n, indptr, indices), "cuda", (rows, k), "float32", "float32", "highest"
    )
    candidates = SPLIT_EXECUTOR.candidates(call)
    assert candidates[0] is None
    assert len(candidates) <= 100
    for candidate in candidates:
        packed = SPLIT_EXECUTOR.pack(call, candidate)
        fields = packed.tile & 0xFF, packed.tile >> 8 & 0xFFF, packed.tile >> 20, packed.block
        shape = SplitShape(*fields)
        assert candidate in (None, fields)
        assert shape.shared_bytes(k) <= MOST_SHARED_BYTES
        assert packed.parts <= MOST_PARTS
        assert len(packed.extra) == shape.groups(n) * packed.parts * shape.rounds * WARPS * 2
    for wrong in ((3, 256, 64, 1), (1, 256, 64), (1, 256, 64, 0)):
        with pytest.raises(ValueError, match="no such shape of the split executor"):
            SPLIT_EXECUTOR.pack(call, wrong)
