"""Which executor comes first on CUDA where nothing was tuned: a measured winner, or dense."""

import numpy as np
import pytest

from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import cuda as executors_cuda
from jaxsparse.pruned.executors.choice import EXECUTORS, ranked
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.pattern import Pattern

needs_kernels = pytest.mark.skipif(not built(), reason="this build has no CUDA kernels")


def problem(n_in, n_out, each, rows, dtype="bfloat16", precision="default"):
    """Every output keeps `each` neighbouring inputs."""
    first = np.random.default_rng(0).integers(0, n_in - each + 1, n_out)
    indices = (first[:, None] + np.arange(each)).reshape(-1)
    pattern = Pattern(n_in, n_out, np.arange(n_out + 1) * each, indices)
    return Problem(pattern, "cuda", (rows, n_in), dtype, dtype, precision)


@needs_kernels
@pytest.mark.parametrize(
    ("size", "each", "rows", "dtype", "first"),
    [
        (4096, 400, 1, "bfloat16", "runs"),
        (4096, 400, 8, "float16", "runs"),
        (4096, 400, 16, "bfloat16", "runs"),
        (8192, 800, 4, "bfloat16", "runs"),
        (8192, 800, 8, "bfloat16", "runs"),
        (8192, 800, 16, "bfloat16", "pairs"),
        (8192, 1200, 1, "bfloat16", "runs"),
        (8192, 2400, 8, "bfloat16", "dense"),
        (4096, 2000, 1, "bfloat16", "runs"),
        (4096, 2400, 1, "bfloat16", "dense"),
        (2048, 200, 1, "bfloat16", "dense"),
        (4096, 400, 1, "float32", "dense"),
    ],
)
def test_few_rows_of_a_large_weight(size, each, rows, dtype, first, monkeypatch):
    monkeypatch.setattr("jaxsparse.pruned.executors.decode.clusters", lambda: True)
    assert ranked(problem(size, size, each, rows, dtype))[0] == first


@pytest.mark.parametrize(
    ("n_in", "n_out", "each", "rows", "shape"),
    [
        (256, 64, 26, 3136, (64, 1, 4, 1)),  # short code
        (256, 256, 26, 50_176, (64, 2, 4, 1)),
        (512, 512, 51, 2048, (64, 1, 4, 1)),  # one launch of few blocks
        (512, 512, 51, 16_384, (32, 4, 7, 1)),  # long code
        (2048, 512, 205, 3136, (32, 4, 7, 2)),
        (2048, 512, 205, 392, (64, 1, 7, 8)),
        (512, 1024, 51, 392, (64, 1, 7, 4)),
        (2048, 512, 205, 49, (64, 1, 2, 8)),
    ],
)
def test_the_shape_of_generated_code(monkeypatch, n_in, n_out, each, rows, shape):
    call = problem(n_in, n_out, each, rows, "float32", "highest")
    for hopper in (True, False):
        monkeypatch.setattr("jaxsparse.pruned.executors.cuda.clusters", lambda is_it=hopper: is_it)
        code = executors_cuda._code_shape(call)
        assert code.threads <= 1024
        parts = shape[3] if hopper else 1
        assert (code.slice_width, code.mates, code.row_tiles, code.parts) == (*shape[:3], parts)


@pytest.mark.parametrize(
    ("n_in", "n_out", "each", "rows", "shape"),
    [
        (256, 256, 26, 6272, (64, 1, 6, 1)),  # one block a multiprocessor
        (256, 1024, 26, 1568, (64, 1, 7, 1)),
        (512, 512, 51, 1568, (64, 1, 7, 2)),
        (1024, 256, 102, 1568, (64, 1, 7, 4)),
        (1024, 1024, 102, 392, (64, 1, 7, 8)),
        (512, 2048, 51, 2048, (64, 2, 8, 1)),
    ],
)
def test_generated_code_fills_the_multiprocessors(monkeypatch, n_in, n_out, each, rows, shape):
    monkeypatch.setattr("jaxsparse.pruned.executors.cuda.clusters", lambda: True)
    code = executors_cuda._code_shape(problem(n_in, n_out, each, rows, "float32", "highest"))
    assert (code.slice_width, code.mates, code.row_tiles, code.parts) == shape


@needs_kernels
@pytest.mark.parametrize(
    ("n_in", "n_out", "each", "rows", "first"),
    [
        (256, 128, 26, 784, "code"),
        (256, 128, 26, 512, "dense"),
        (512, 1024, 51, 392, "split"),  # 52,000 kept weights: 11.2 us, `code` 13.1
        (2048, 512, 205, 16_384, "code"),  # 105,000: four modules
        (2048, 600, 205, 16_384, "dense"),  # 123,000: refused
        (512, 512, 70, 16_384, "dense"),  # 86 % sparse
    ],
)
def test_many_rows_of_a_small_weight(n_in, n_out, each, rows, first, monkeypatch):
    monkeypatch.setattr("jaxsparse.pruned.executors.cuda.clusters", lambda: True)
    assert ranked(problem(n_in, n_out, each, rows, "float32", "highest"))[0] == first


@needs_kernels
def test_what_never_won_comes_after_dense():
    names = ranked(problem(512, 512, 64, 64))
    assert names[0] == "dense"
    assert {"rows", "code", "vectors"} <= set(names)


def test_every_name_is_known_once():
    names = [e.name for e in EXECUTORS["cuda"]]
    assert sorted(names) == sorted(set(names))
    few = {"pairs", "lanes", "runs"}
    assert few | {"split", "vectors", "rows", "code", "windows", "dense"} == set(names)
