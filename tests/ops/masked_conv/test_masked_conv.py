"""masked_conv against float64 numpy: every geometry, and what is its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.masked_conv.oracle import masked_conv as oracle
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js


def make_inputs(rng, density, channels=16, outputs=24):
    mask = rng.random((2, 9, 37)) < density if density < 1 else np.ones((2, 9, 37), bool)
    diff = {
        "x": rng.standard_normal((2, 9, 37, channels), np.float32),
        "kernel": rng.standard_normal((3, 3, channels, outputs), np.float32) / 12,
        "bias": rng.standard_normal(outputs, np.float32),
        "base": rng.standard_normal((2, 9, 37, outputs), np.float32),
    }
    return diff, mask


def apply(diff, mask, *, implementation, **options):
    return js.masked_conv(
        diff["x"],
        diff["kernel"],
        mask,
        bias=diff.get("bias"),
        base=diff.get("base"),
        implementation=implementation,
        **options,
    )


GEOMETRIES = {
    "1x1": {"window": (1, 1)},
    "5x5": {"window": (5, 5)},
    "7x7 stride 2": {"window": (7, 7), "strides": (2, 2)},
    "stride 2": {"strides": (2, 2)},
    "stride 3 by 1": {"strides": (3, 1)},
    "dilated": {"dilation": (2, 3)},
    "valid": {"padding": "VALID"},
    "explicit": {"padding": ((2, 0), (0, 3))},
    "cropped": {"padding": ((-1, 0), (2, -2))},
    "even window": {"window": (2, 4)},
    "groups": {"groups": 4},
    "depthwise": {"groups": 16, "outputs": 16},
    "depthwise times 2": {"groups": 16, "outputs": 32},
    "odd channels": {"channels": 3, "outputs": 5},
    "one channel": {"channels": 1, "outputs": 1},
    "wide": {"channels": 72, "outputs": 136},
}


def problem(rng, *, window=(3, 3), channels=16, outputs=24, groups=1, density=0.4, **options):
    x = rng.standard_normal((2, 11, 35, channels), np.float32)
    shape = (*window, channels // groups, outputs)
    kernel = rng.standard_normal(shape, np.float32) / np.sqrt(np.prod(shape[:3]))
    strides = options.get("strides", (1, 1))
    like = jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(
            x,
            k,
            strides,
            options.get("padding", "SAME"),
            rhs_dilation=options.get("dilation", (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        ),
        x,
        kernel,
    )
    mask = rng.random(like.shape[:3]) < density
    return x, kernel, mask, {**options, "groups": groups}


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_geometry(implementation, rng, name, dtype):
    x, kernel, mask, options = problem(rng, **GEOMETRIES[name])
    exact = rounded({"x": x, "kernel": kernel}, dtype)
    want = oracle(exact["x"], exact["kernel"], mask, **options)
    got = js.masked_conv(
        jnp.asarray(x).astype(dtype),
        jnp.asarray(kernel).astype(dtype),
        jnp.asarray(mask),
        implementation=implementation,
        **options,
    )
    assert_close(got, want, dtype)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry_grad(implementation, rng, name):
    x, kernel, mask, options = problem(rng, **GEOMETRIES[name])
    weight = jnp.asarray(rng.standard_normal((*mask.shape, kernel.shape[3]), np.float32))

    def ours(x, k):
        y = js.masked_conv(x, k, jnp.asarray(mask), implementation=implementation, **options)
        return jnp.sum(y * weight)

    def plain(x, k):
        y = jax.lax.conv_general_dilated(
            x,
            k,
            options.get("strides", (1, 1)),
            options.get("padding", "SAME"),
            rhs_dilation=options.get("dilation", (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=options["groups"],
        )
        return jnp.sum(jnp.where(mask[..., None], y, 0) * weight)

    with jax.default_matmul_precision("highest"):
        got = jax.grad(ours, (0, 1))(jnp.asarray(x), jnp.asarray(kernel))
        want = jax.grad(plain, (0, 1))(jnp.asarray(x), jnp.asarray(kernel))
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, "float32", scale=2.0)


@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu", "gelu"])
def test_activation(implementation, rng, activation):
    diff, mask = make_inputs(rng, 0.4)
    diff["kernel"] = diff["kernel"] * 12
    want = oracle(
        *(diff[k] for k in ("x", "kernel")), mask, bias=diff["bias"], activation=activation
    )
    got = js.masked_conv(
        *(jnp.asarray(diff[k]) for k in ("x", "kernel")),
        jnp.asarray(mask),
        bias=jnp.asarray(diff["bias"]),
        activation=activation,
        precision="highest",  # TF32 errs by the sums before the clip, which are larger
        implementation=implementation,
    )
    assert_close(got, want, "float32")


def test_float32_result_of_bfloat16(implementation, rng):
    diff, mask = make_inputs(rng, 0.4)
    half = cast({k: diff[k] for k in ("x", "kernel")}, "bfloat16")
    got = js.masked_conv(
        half["x"],
        half["kernel"],
        jnp.asarray(mask),
        preferred_element_type=jnp.float32,
        implementation=implementation,
    )
    assert got.dtype == jnp.float32
    exact = rounded({k: diff[k] for k in ("x", "kernel")}, "bfloat16")
    assert_close(got, oracle(exact["x"], exact["kernel"], mask), "float32")


@pytest.mark.parametrize("zero", ["batch", "height", "channels", "outputs", "window"])
def test_zero_size(implementation, zero):
    b, h, c, o, k = (
        0 if zero == z else n
        for z, n in zip(
            ("batch", "height", "channels", "outputs", "window"), (2, 5, 4, 6, 3), strict=True
        )
    )
    x, kernel = jnp.ones((b, h, 7, c)), jnp.ones((k, k, c, o))
    out_h, out_w = (h, 7) if k else (h + 1, 8)
    padding = "SAME" if k else "VALID"
    got = js.masked_conv(
        x,
        kernel,
        jnp.ones((b, out_h, out_w), bool),
        padding=padding,
        bias=jnp.ones(o),
        implementation=implementation,
    )
    assert got.shape == (b, out_h, out_w, o)
    if zero in ("channels", "window"):
        np.testing.assert_array_equal(np.asarray(got), 1.0)


@given(
    data=st.data(),
    batch=st.integers(0, 3),
    height=st.integers(1, 12),
    width=st.integers(1, 40),
    channels=st.integers(1, 20),
    outputs=st.integers(1, 40),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    tile=st.tuples(st.integers(1, 9), st.integers(1, 33)),
)
def test_any_shape(
    implementation, data, batch, height, width, channels, outputs, window, strides, dilation, tile
):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    mask_shape = (batch, -(-height // strides[0]), -(-width // strides[1]))
    mask = rng.random(mask_shape) < data.draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]))
    x = rng.standard_normal((batch, height, width, channels), np.float32)
    kernel = rng.standard_normal((*window, channels, outputs), np.float32) / channels
    index = js.tile_index(jnp.asarray(mask), tile)
    got = js.masked_conv(
        jnp.asarray(x),
        jnp.asarray(kernel),
        index,
        strides=strides,
        dilation=dilation,
        implementation=implementation,
    )
    assert_close(got, oracle(x, kernel, mask, strides=strides, dilation=dilation), "float32")


def test_a_tile_larger_than_the_image_lists_all_of_it(rng, implementation):
    diff, mask = make_inputs(rng, 0.4)
    mask = jnp.asarray(mask)

    def run(tile):
        index = js.tile_index(mask, tile)
        return jax.value_and_grad(
            lambda d: jnp.sum(apply(d, index, implementation=implementation) ** 2)
        )(diff)

    with jax.default_matmul_precision("highest"):  # a GPU's default is TF32
        want, got = run((16, 40)), run((4096, 4096))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), got, want)
