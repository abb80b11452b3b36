"""What is chosen fits the shared memory of this machine's GPU, whichever that is."""

import dataclasses
import types

import numpy as np
import pytest

from jaxsparse.core import device
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned.emit.shape import CodeShape
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import cuda as executors_cuda
from jaxsparse.pruned.executors import decode as decode
from jaxsparse.pruned.executors.conv import CONV_EXECUTORS
from jaxsparse.pruned.executors.conv_tiles import best
from jaxsparse.pruned.executors.vectors import VECTORS_EXECUTOR
from jaxsparse.pruned.layouts import lanes, pairs, runs
from jaxsparse.pruned.pattern import Pattern

GPUS = {"8.0": 163, "8.6": 99, "8.9": 99, "9.0": 227, "10.0": 227, "12.0": 99}


@pytest.fixture(params=GPUS)
def limit(request, monkeypatch):
    """Of a block of a GPU that JAX sees, in bytes."""
    here(monkeypatch, types.SimpleNamespace(device_kind="a GPU", compute_capability=request.param))
    return GPUS[request.param] << 10


def here(monkeypatch, *gpus):
    monkeypatch.setattr("jax.devices", lambda platform=None: list(gpus))


def problem(n_in, n_out, each, rows):
    indices = np.tile(np.arange(each) * (n_in // each), n_out)
    pattern = Pattern(n_in, n_out, np.arange(n_out + 1) * each, indices)
    return Problem(pattern, "cuda", (rows, n_in), "bfloat16", "bfloat16", "default")


def test_what_the_device_says(limit, monkeypatch):
    assert device.shared_bytes() == limit
    one, other = (
        types.SimpleNamespace(compute_capability="9.0", shared_memory_per_block_optin=n << 10)
        for n in (400, 120)
    )
    here(monkeypatch, one)
    assert device.shared_bytes() == device.MOST_SHARED_BYTES
    here(monkeypatch, one, other)
    assert device.shared_bytes() == 120 << 10

    def nothing(platform=None):
        raise RuntimeError("no such backend")

    monkeypatch.setattr("jax.devices", nothing)
    assert device.shared_bytes() == device.MOST_SHARED_BYTES
    assert device.clusters()


@pytest.mark.parametrize(("channels", "size"), [(256, 14), (512, 7), (64, 56)])
@pytest.mark.parametrize("batch", [1, 32])
def test_tiles_of_a_convolution(limit, channels, size, batch):
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    kept = channels * 9 // 10
    indices = np.tile(np.arange(kept) * 10, channels)
    pattern = Pattern(9 * channels, channels, np.arange(channels + 1) * kept, indices, (3, 3))
    shape, f32 = (batch, size, size, channels), "float32"
    call = Problem(pattern, "cuda", shape, f32, f32, "highest", geometry, True)
    found = best(call)
    assert found
    assert max(layout.shared_bytes for _, layout in found) <= limit
    (windows,) = CONV_EXECUTORS
    largest = ((layout.shared_bytes, layout.tile.key) for _, layout in found)
    windows.pack(call, max(largest)[1])


@pytest.mark.parametrize("rows", [1, 4, 8, 16])
@pytest.mark.parametrize("size", [4096, 16_384, 65_536])
def test_few_rows(limit, rows, size):
    call = problem(size, 4096, 16, rows)
    for bits, parts, blocks in decode._runs_candidates(call)[1:]:
        assert bits in runs.BITS
        assert runs.shared_bytes(size, 4096, parts, rows, blocks) <= limit
    for _, parts in decode._lanes_candidates(call)[1:]:
        assert lanes.part_inputs(size, parts) * lanes.input_bytes(rows) <= limit


@pytest.mark.parametrize("rows", [8, 32, 64])
def test_pairs(limit, rows, monkeypatch):
    monkeypatch.setattr(decode, "built", lambda: True)
    call = problem(1024, 64, 1024, rows)  # every weight kept
    why = decode._pairs_against(call)
    assert (why is not None) == (rows == 64 and limit == 99 << 10)
    if why is None:
        for candidate in decode._pairs_candidates(call):
            tiles = decode._pack_pairs(call, candidate).tile
            pattern = call.pattern
            pack = pairs.pack_pairs(pattern.indptr, pattern.indices, pattern.n_in, tiles)
            assert pairs.shared_bytes(pack, tiles, rows) <= limit
    else:
        assert "shared memory" in why


@pytest.mark.parametrize(
    ("n_out", "rows"), [(128_256, 1), (128_256, 8), (151_936, 1), (262_144, 4), (400_000, 1)]
)
def test_runs_of_a_vocabulary(monkeypatch, n_out, rows):
    """Where only two blocks a multiprocessor have a thread for every output, those are taken."""
    monkeypatch.setattr(decode, "built", lambda: True)
    call = problem(64, n_out, 2, rows)
    fit = decode._runs_candidates(call)[1:]
    if decode._runs_against(call) is None:
        assert decode._runs_choice(call) in fit
        assert decode._pack_runs(call, None).executor == decode.RUNS
    else:
        assert not fit


@pytest.mark.parametrize(
    ("n_in", "n_out", "rows"), [(2048, 2048, 448), (512, 4096, 1568), (64, 64, 99)]
)
def test_generated_code(limit, n_in, n_out, rows):
    call = dataclasses.replace(problem(n_in, n_out, n_in // 4, rows), dtype="float32")
    assert executors_cuda._code_shape(call).shared_bytes <= limit
    shapes = executors_cuda._code_candidates(call)[1:]
    assert shapes
    assert max(CodeShape(*shape).shared_bytes for shape in shapes) <= limit


@pytest.mark.parametrize(("dtype", "least"), [("float32", 226 << 10), ("bfloat16", 163 << 10)])
def test_the_ring_of_vectors(limit, dtype, least, monkeypatch):
    monkeypatch.setattr("jaxsparse.pruned.executors.vectors.built", lambda: True)
    call = dataclasses.replace(problem(64, 64, 8, 64), dtype=dtype, out_dtype=dtype)
    why = VECTORS_EXECUTOR.reason_against(call)
    assert (why is None) == (device.clusters() and limit > least), why
