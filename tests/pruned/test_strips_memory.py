"""The CPU's workspace stays near the size of the activations (SparDR's claim against im2col)."""

import math

import jax
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned import strips
from jaxsparse.pruned.executor import Problem


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "window"),
    [(358, 7, 2048, 1), (179, 14, 179, 3), (96, 80, 96, 3)],
)
def test_two_workers_need_at_most_1_3_activations(
    channels, size, outputs, window, rng, monkeypatch
):
    monkeypatch.setattr(strips, "workers", lambda: 2)
    shape = (window, window, channels, outputs)
    kernel = np.where(rng.random(shape) < 0.1, rng.standard_normal(shape), 0).astype(np.float32)
    pad = ((window // 2, window // 2),) * 2
    problem = Problem(
        pattern=js.pruned.inspect(kernel, kind="conv").pattern,
        platform="cpu",
        x_shape=(1, size, size, channels),
        dtype="float32",
        out_dtype="float32",
        precision=jax.lax.Precision.DEFAULT.name.lower(),
        geometry=Geometry((1, 1), pad, (1, 1), (1, 1), 1),
    )
    activations = 4 * (math.prod(problem.x_shape) + problem.positions * outputs)
    assert strips.STRIPS.pack(problem).scratch <= strips.MOST_MEMORY * activations
