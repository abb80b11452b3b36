"""The kernel gradient by each variant of the CUDA table, against float64 numpy; and its choice."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv import dkernel as native
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.masked_conv import dkernel as chooser
from jaxsparse.select.variants import table

ON_GPU = jax.default_backend() == "gpu"
NAMES = list(table("masked_conv_dkernel", "cuda"))
built = pytest.mark.skipif(not NAMES, reason="this build has no CUDA module")
SHAPES = {
    "64 to 64": {"channels": 64, "outputs": 64},
    "8 to 8": {"channels": 8, "outputs": 8},
    "24 to 40": {"channels": 24, "outputs": 40},
    "128 to 320": {"channels": 128, "outputs": 320},
    "1x1": {"channels": 64, "outputs": 136, "window": (1, 1), "pad": 0},
    "8x8": {"channels": 16, "outputs": 64, "window": (8, 8), "pad": 3},
    "stride 2": {"channels": 64, "outputs": 72, "strides": (2, 2)},
    "dilated": {"channels": 64, "outputs": 64, "dilation": (2, 3)},
}


def params(window=(3, 3), strides=(1, 1), dilation=(1, 1), pad=1, groups=1):
    geometry = Geometry(strides, ((pad, pad), (pad, pad)), dilation, (1, 1), groups)
    return ConvParams(geometry, None, "default", "bfloat16"), window


def problem(rng, dtype, density=0.4, *, channels, outputs, **window):
    """(params, window, x, g, mask); what must not be read is NaN."""
    p, hw = params(**window)
    x = rng.standard_normal((2, 19, 37, channels))
    shape = (2, *p.geometry.out_size(x.shape[1:3], hw))
    mask = rng.random(shape) < density
    g = np.where(mask[..., None], rng.standard_normal((*shape, outputs)), np.nan)
    return p, hw, cast({"x": x, "g": g}, dtype), mask


def oracle(p, hw, x, g, mask):
    """The gradient in float64, tap by tap over the active pixels."""
    geo, (b, oy, ox) = p.geometry, np.nonzero(mask)
    out = np.zeros((*hw, x.shape[3], g.shape[3]))
    for ky in range(hw[0]):
        for kx in range(hw[1]):
            y = oy * geo.strides[0] + ky * geo.dilation[0] - geo.padding[0][0]
            c = ox * geo.strides[1] + kx * geo.dilation[1] - geo.padding[1][0]
            inside = (y >= 0) & (y < x.shape[1]) & (c >= 0) & (c < x.shape[2])
            rows = x[b[inside], y[inside], c[inside]]
            out[ky, kx] = rows.T @ g[b[inside], oy[inside], ox[inside]]
    return out


def run(p, hw, arrays, index, variant):
    call = jax.jit(lambda x, g, i: native.dkernel(p, hw, "cuda", x, g, i, variant))
    return call(arrays["x"], arrays["g"], index)


@pytest.mark.skipif(not ON_GPU, reason="JAX sees no CUDA device")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("variant", NAMES)
def test_variant(rng, variant, shape, dtype):
    p, hw, arrays, mask = problem(rng, dtype, **SHAPES[shape])
    against = reason_against(p, variant, hw, arrays["x"], arrays["g"])
    assert against is None or "capability" in against
    if against:
        pytest.skip(against)
    exact = rounded(arrays, dtype)
    want = oracle(p, hw, exact["x"], exact["g"], mask)
    got = run(p, hw, arrays, js.tile_index(jnp.asarray(mask), (1, 1)), variant)
    assert_close(got, want, "float32")
    again = run(p, hw, arrays, js.tile_index(jnp.asarray(mask), (1, 1)), variant)
    np.testing.assert_array_equal(got, again)


@pytest.mark.skipif(not ON_GPU, reason="JAX sees no CUDA device")
@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("density", [0.0, 0.002, 1.1])
def test_few_and_all(rng, variant, density):
    p, hw, arrays, mask = problem(rng, "bfloat16", density, channels=64, outputs=64)
    if reason_against(p, variant, hw, arrays["x"], arrays["g"]):
        pytest.skip("not on this device")
    exact = rounded(arrays, "bfloat16")
    got = run(p, hw, arrays, js.tile_index(jnp.asarray(mask), (1, 1)), variant)
    assert_close(got, oracle(p, hw, exact["x"], exact["g"], mask), "float32")


@pytest.mark.skipif(not ON_GPU, reason="JAX sees no CUDA device")
@pytest.mark.parametrize("variant", NAMES)
def test_overflow_counts_listed_pixels_only(rng, variant):
    p, hw, arrays, mask = problem(rng, "bfloat16", channels=64, outputs=64)
    if reason_against(p, variant, hw, arrays["x"], arrays["g"]):
        pytest.skip("not on this device")
    index = js.tile_index(jnp.asarray(mask), (1, 1), capacity=100, ordered=True)
    exact = rounded(arrays, "bfloat16")
    listed = np.asarray(index.cover())
    assert listed.sum() == 100
    got = run(p, hw, arrays, index, variant)
    assert_close(got, oracle(p, hw, exact["x"], exact["g"], listed), "float32")


def first(p, hw, x, g):
    return chooser.candidates(native.problem_of(p, hw, x, g)).names[0]


def reason_against(p, variant, hw, x, g):
    return chooser.reason_against(native.problem_of(p, hw, x, g), variant)


def shaped(channels, outputs, dtype="bfloat16", images=64):
    return (
        jax.ShapeDtypeStruct((images, 56, 56, channels), dtype),
        jax.ShapeDtypeStruct((images, 56, 56, outputs), dtype),
    )


@built
@pytest.mark.parametrize(
    ("outputs", "name"), [(256, "depth256"), (512, "depth256"), (128, "depth128"), (64, "depth64")]
)
def test_choice_by_outputs(monkeypatch, outputs, name):
    monkeypatch.setattr(chooser, "is_hopper", lambda: True)
    assert first(*params(), *shaped(outputs, outputs)) == name


@built
def test_few_pixels_take_a_tile_with_small_parts(monkeypatch):
    monkeypatch.setattr(chooser, "is_hopper", lambda: True)
    assert first(*params(), *shaped(128, 128, images=8)) == "depth64"
    assert first(*params(), *shaped(256, 256, images=8)) == "depth256"


@built
def test_choice_where_tensor_core_rows_refuse(monkeypatch):
    monkeypatch.setattr(chooser, "is_hopper", lambda: True)
    assert first(*params(), *shaped(64, 64, "float32")) == "tiles"
    assert first(*params(), *shaped(12, 64)) == "direct"
    assert first(*params(groups=2), *shaped(64, 64)) == "direct"
    assert first(*params(window=(9, 9)), *shaped(64, 64)) == "tiles"
    monkeypatch.setattr(chooser, "is_hopper", lambda: False)
    assert first(*params(), *shaped(64, 64)) == "tiles"


@built
def test_small_kernels_take_tiles(monkeypatch):
    monkeypatch.setattr(chooser, "is_hopper", lambda: True)
    assert first(*params(window=(1, 1)), *shaped(256, 64)) == "tiles"
    assert first(*params(window=(1, 1)), *shaped(256, 256)) == "depth256"


def test_explain_lists_the_gradient_of_the_kernel():
    x, kernel = jnp.ones((1, 8, 9, 8)), jnp.ones((3, 3, 8, 8))
    mask = jnp.ones((1, 8, 9), bool).at[0, 0].set(False)
    told = js.explain(jax.grad(lambda k: js.masked_conv(x, k, mask).sum()), kernel)
    call = told.calls[-1]
    assert call.op == "masked_conv_dkernel"
    assert call.counts == [63]
    if ON_GPU:
        assert call.variant(63) in NAMES
        assert set(NAMES) - {call.variant(63)} <= set(call.against)


@built
def test_reasons():
    p, hw = params()
    x, g = shaped(64, 64, "float32")
    assert "K contiguous" in str(reason_against(p, "depth64", hw, x, g))
    assert reason_against(p, "direct", hw, x, g) is None
    assert "multiples of 4" in str(reason_against(p, "tiles", hw, *shaped(3, 64, "float32")))
    grouped = dataclasses.replace(p, geometry=dataclasses.replace(p.geometry, groups=2))
    assert "groups=2" in str(reason_against(grouped, "tiles", hw, x, g))


@built
def test_a_named_variant_that_cannot_run_is_an_error():
    p, hw = params()
    index = js.tile_index(jnp.ones((64, 56, 56), bool), (1, 1))
    with pytest.raises(ValueError, match=r"depth64.*K contiguous"):
        jax.eval_shape(
            lambda x, g: native.dkernel(p, hw, "cuda", x, g, index, "depth64"),
            *shaped(64, 64, "float32"),
        )
