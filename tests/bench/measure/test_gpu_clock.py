"""GPU time between two marks in a jitted function."""

import ctypes

import jax
import jax.numpy as jnp
import pytest

from jaxsparse.bench.measure.gpu_clock import GpuClock

ON_GPU = jax.default_backend() == "gpu"
CALLBACK = "xla_buffer_python_gpu_callback"


def chain(clock: GpuClock):
    """Two products between the marks."""

    def run(xs):
        xs = clock.start(xs)
        return xs, clock.stop([x @ x for x in xs])

    return run


def test_marks_lie_around_what_is_timed():
    xs = [jnp.ones((4, 4)), jnp.ones((4, 4))]
    marks = chain(object.__new__(GpuClock))
    traced = jax.jit(marks, donate_argnums=0).trace(xs)
    lines = traced.lower(lowering_platforms=("cuda",)).as_text().splitlines()
    at = [i for i, line in enumerate(lines) if f"custom_call @{CALLBACK}" in line]
    products = [i for i, line in enumerate(lines) if "dot_general" in line]
    assert len(at) == 2
    assert at[0] < products[0] < products[-1] < at[1]
    # Every array passes through the marks in place: nothing is copied.
    assert all(lines[i].count("output_operand_alias<") == 2 for i in at)


def test_without_a_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(OSError, match="libcuda"):
            GpuClock()
    else:
        pytest.skip("this machine has a CUDA driver")


@pytest.mark.skipif(not ON_GPU, reason="JAX sees no GPU")
def test_it_counts_what_lies_between():
    clock = GpuClock()
    run = jax.jit(chain(clock))
    took = {}
    for side in (256, 4096):
        xs = [jnp.ones((side, side), jnp.bfloat16)] * 4
        for _ in range(3):
            jax.block_until_ready(run(xs))
            took[side] = clock.microseconds()
    assert 0 < took[256] < took[4096]
