"""Which executor comes first on CUDA where nothing was tuned: a measured winner, or dense."""

import numpy as np
import pytest

from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import EXECUTORS, ranked
from jaxsparse.pruned.executors_decode import built
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
        (4096, 400, 16, "bfloat16", "dense"),
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
    monkeypatch.setattr("jaxsparse.pruned.executors_decode.clusters", lambda: True)
    assert ranked(problem(size, size, each, rows, dtype))[0] == first


@needs_kernels
def test_what_never_won_comes_after_dense():
    names = ranked(problem(512, 512, 64, 64))
    assert names[0] == "dense"
    assert {"rows", "code", "vectors"} <= set(names)


def test_every_name_is_known_once():
    names = [e.name for e in EXECUTORS["cuda"]]
    assert sorted(names) == sorted(set(names))
    few = {"bitmap", "pairs", "lanes", "runs"}
    assert few | {"vectors", "rows", "code", "windows", "dense"} == set(names)
