"""The CPU's executor of depthwise kernels: geometry, channels, dtypes, taps, what it refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ffi.register import module
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import depthwise
from jaxsparse.pruned.executors.choice import EXECUTORS


@pytest.fixture(autouse=True)
def on_cpu():
    """Also where JAX sees a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


needs_cpu = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")


def drawn(rng, image, window=(3, 3), fill=0.6):
    """An input, a depthwise kernel, and its plan."""
    shape = (*window, 1, image[3])
    kernel = np.where(rng.random(shape) < fill, rng.standard_normal(shape), 0).astype(np.float32)
    plan = js.pruned.inspect(kernel, kind="conv", groups=image[3])
    return jnp.asarray(rng.standard_normal(image), jnp.float32), kernel, plan


def both(x, kernel, plan, bias=None, activation=None, padding="SAME", strides=1, dilation=1):
    """The result of the executor, and XLA's."""
    geometry = {"padding": padding, "strides": strides, "dilation": dilation}
    with js.config(variant="depthwise"):
        got = js.pruned_conv(
            x, plan, bias=bias, activation=activation, implementation="cpu", **geometry
        )
    pads = [(padding,) * 2] * 2 if isinstance(padding, int) else padding
    want = jax.lax.conv_general_dilated(
        x.astype(jnp.float32),
        kernel,
        (strides,) * 2,
        pads,
        rhs_dilation=(dilation,) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[3],
        precision="highest",
    )
    want = want if bias is None else want + bias
    return got, jax.nn.relu(want) if activation == "relu" else want


@needs_cpu
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("image", [(1, 1, 1, 16), (2, 7, 7, 40), (1, 5, 27, 64), (1, 19, 2, 3)])
@pytest.mark.parametrize("window", [(3, 3), (5, 5)])
def test_images(rng, image, strides, window):
    """Rows of one to many pixels, and of channels that fill no vector, one, and several."""
    x, kernel, plan = drawn(rng, image, window)
    bias = jnp.asarray(rng.standard_normal(image[3]), jnp.float32)
    assert_close(*both(x, kernel, plan, bias, "relu", strides=strides), "float32")


@needs_cpu
@pytest.mark.parametrize(
    "geometry",
    [
        {"padding": "VALID"},
        {"padding": 4},
        {"dilation": 2},
        {"dilation": 3, "strides": 2, "padding": 1},
        {"padding": [(2, 0), (0, 3)]},
    ],
)
def test_geometry(rng, geometry):
    x, kernel, plan = drawn(rng, (2, 9, 12, 20))
    assert_close(*both(x, kernel, plan, **geometry), "float32")


@needs_cpu
@pytest.mark.parametrize("activation", ["relu6", "silu", "gelu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtypes_and_activations(rng, dtype, activation):
    x, _, plan = drawn(rng, (1, 6, 11, 37))
    x, plan, bias = x.astype(dtype), plan.astype(dtype), jnp.ones(37)
    options = {"bias": bias, "activation": activation}
    with js.config(variant="depthwise"):
        got = js.pruned_conv(x, plan, implementation="cpu", **options)
    assert_close(got, js.pruned_conv(x, plan, implementation="reference", **options), dtype)


@needs_cpu
def test_taps_that_no_channel_keeps_are_left_out(rng):
    x, kernel, _ = drawn(rng, (1, 8, 8, 24), fill=1.0)
    kernel[[0, 2], [1, 2]] = 0
    plan = js.pruned.inspect(kernel, kind="conv", groups=24)
    packed = depthwise.pack(problem_of(plan, x.shape))
    assert len(packed.indices) == 7 * 24
    assert set(packed.indices) == {0, 2, 3, 4, 5, 6, 7}
    assert_close(*both(x, kernel, plan), "float32")


@needs_cpu
def test_nothing_is_kept(rng):
    x, kernel, plan = drawn(rng, (1, 4, 5, 8), fill=0.0)
    got, want = both(x, kernel, plan, bias=jnp.arange(8.0))
    np.testing.assert_array_equal(got, want)


def problem_of(plan, shape, **changed):
    channels = plan.pattern.channels
    geo = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), channels)
    return dataclasses.replace(
        Problem(plan.pattern, "cpu", shape, "float32", "float32", "default", geo), **changed
    )


def test_what_it_refuses(rng):
    x, _, plan = drawn(rng, (1, 6, 6, 8))
    call = problem_of(plan, x.shape)
    assert depthwise.reason_against(call) is None
    first = dataclasses.replace(call, channels_first=True)
    assert "NHWC" in depthwise.reason_against(first)
    spread = dataclasses.replace(call.geometry, lhs_dilation=(2, 2))
    assert "lhs_dilation" in depthwise.reason_against(dataclasses.replace(call, geometry=spread))
    two = js.pruned.inspect(np.ones((3, 3, 1, 16), np.float32), kind="conv", groups=8)
    assert "16 outputs" in depthwise.reason_against(problem_of(two, x.shape))
    product = js.pruned.inspect(np.ones((8, 8), np.float32))
    plain = Problem(product.pattern, "cpu", (4, 8), "float32", "float32", "default")
    assert "products" in depthwise.reason_against(plain)


def test_it_comes_first_for_whole_kernels():
    """And `strips` can run what it can."""
    plan = js.pruned.inspect(np.ones((3, 3, 1, 64), np.float32), kind="conv", groups=64)
    call = problem_of(plan, (1, 56, 56, 64))
    costs = {e.name: e.cost(call) for e in EXECUTORS["cpu"] if e.reason_against(call) is None}
    assert min(costs, key=costs.get) == "depthwise"
    assert "strips" in costs
