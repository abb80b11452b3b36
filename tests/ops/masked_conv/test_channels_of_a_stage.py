"""Rows of the tensor-core kernels on inputs whose channels do not fill stages of 128 bytes: K runs
over the taps of 64 channels (32 in float32) and fills the last of them up, or in memory order.
"""

import jax
import jax.numpy as jnp
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.select.masked_conv.cost import k_steps
from jaxsparse.select.masked_conv.reasons import takes
from jaxsparse.select.variants import table
from jaxsparse.testing.cases import ConvCase
from jaxsparse.tune.sweep import problem_of

ROWS = table("masked_conv", "cuda")
#: Filled up (104, 152, 200, 264: at most a quarter more steps), and in memory order (72, 136).
CHANNELS = {"bfloat16": (72, 104, 136, 152, 200, 264), "float32": (36, 52, 68, 76, 100, 132)}


def test_steps_are_filled_up_by_a_quarter_at_most():
    filled = {c: k_steps(9, 2 * c) for c in CHANNELS["bfloat16"]}
    assert filled == {72: 11, 104: 18, 136: 20, 152: 27, 200: 36, 264: 45}
    assert k_steps(9, 4 * 52) == 18
    assert k_steps(9, 2 * 48) == 7  # narrower than a stage: in memory order
    assert all(k_steps(1, 2 * c) == -(-c // 64) for c in range(8, 640, 8))
    assert all(k_steps(25, 2 * c) == 25 * c // 64 for c in range(64, 640, 64))


@pytest.mark.gpu
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_row(rng, dtype, number, strides):
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("these rows need compute capability 9.0")
    channels, outputs, window = CHANNELS[dtype][number], 200, (3, 3) if number % 2 else (5, 2)
    case = ConvCase("drawn", 3, 19, 23, channels, outputs, window, strides)
    x = jnp.asarray(rng.standard_normal(case.x_shape), dtype)
    kernel = jnp.asarray(rng.standard_normal(case.kernel_shape) / 30, dtype)
    mask = jnp.asarray(rng.random(case.mask_shape) < 0.5)
    want = js.masked_conv(x, kernel, mask, strides=strides, implementation="reference")
    names = [n for n in takes(problem_of(case, dtype)) if ROWS[n].fields.get("tile_m")]
    assert "m128n128" in names
    for name in names:
        with js.config(variant=name):
            got = js.masked_conv(x, kernel, mask, strides=strides)
        assert_close(got, want, dtype)
