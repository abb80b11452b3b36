"""A stack of masked convolutions against the same layers one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.ffi import register
from jaxsparse.mask import blobs
from tests.ops.op_suite import TOLERANCE, assert_close

ACTIVATIONS = ["relu", None, "relu6", "silu", "gelu"]
RESIDUALS = [None, -1, None, 1, -1]


def problem(channels, layers, hw=(19, 37), images=2, window=3, dtype=jnp.bfloat16, seed=0):
    rng = np.random.default_rng(seed)

    def normal(*shape, scale=1.0):
        return jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32).astype(dtype)

    scale = (window * window * channels) ** -0.5
    x = normal(images, *hw, channels)
    kernels = [normal(window, window, channels, channels, scale=scale) for _ in range(layers)]
    bases = [normal(images, *hw, channels) for _ in range(layers)]
    biases = [None if i == 1 else normal(channels).astype(jnp.float32) for i in range(layers)]
    mask = jnp.asarray(blobs((images, *hw), 0.3, seed=seed, scale=2))
    return x, kernels, bases, biases, mask


def by_layers(x, kernels, active, bases, biases, activations, residuals, implementation):
    outs = []
    for i, kernel in enumerate(kernels):
        at = residuals[i]
        out = js.masked_conv(
            outs[-1] if outs else x,
            kernel,
            active,
            bias=biases[i],
            activation=activations[i],
            base=bases[i],
            residual=None if at is None else x if at < 0 else outs[at],
            implementation=implementation,
        )
        outs.append(out)
    return outs


def check(given, tile, implementation, layers=5, activations=ACTIVATIONS, residuals=RESIDUALS):
    x, kernels, bases, biases, mask = given
    active = mask if tile is None else js.tile_index(mask, tile)
    activations, residuals = activations[:layers], residuals[:layers]

    @jax.jit
    def stack(x, kernels, active, bases, biases):
        return js.masked_conv_stack(
            x,
            kernels,
            active,
            bases,
            biases=biases,
            activations=activations,
            residuals=residuals,
            implementation=implementation,
        )

    got = stack(x, kernels, active, bases, biases)
    want = by_layers(x, kernels, active, bases, biases, activations, residuals, "reference")
    assert len(got) == layers
    for one, other, base in zip(got, want, bases, strict=True):
        assert one.dtype == x.dtype
        outside = ~np.asarray(mask)
        np.testing.assert_array_equal(np.asarray(one)[outside], np.asarray(base)[outside])
        assert_close(one, other, x.dtype.name, scale=layers)


@pytest.mark.parametrize("tile", [None, (8, 8), (16, 8), (1, 1)], ids=str)
@pytest.mark.parametrize("channels", [64, 32])
def test_layers_one_after_the_other(implementation, channels, tile):
    check(problem(channels, 5), tile, implementation)


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_windows_and_dtypes(implementation, window, dtype):
    check(problem(64, 2, window=window, dtype=jnp.dtype(dtype)), (8, 8), implementation, layers=2)


@pytest.mark.parametrize("channels", [64, 32])
def test_as_many_layers_as_one_launch_takes(implementation, channels):
    activations = ["relu", "relu", None, "relu6", "relu", "silu"] * 2
    residuals = [None, -1, None, 1, None, 3, None, 5, None, 7, None, 9]
    given = problem(channels, 12, hw=(70, 90), images=1)
    check(given, (8, 8), implementation, 12, activations, residuals)


def test_more_layers_than_one_launch_takes(implementation):
    x, kernels, bases, _, mask = problem(32, 14, hw=(16, 16), images=1)
    none = [None] * 14
    out = js.masked_conv_stack(x, kernels, mask, bases, implementation=implementation)
    want = by_layers(x, kernels, mask, bases, none, none, none, "reference")
    assert_close(out[-1], want[-1], "bfloat16", scale=14)


@pytest.mark.parametrize("outputs", [16, 64, 5, 80])
def test_the_last_layer_may_have_other_outputs(implementation, outputs):
    x, kernels, bases, biases, mask = problem(64, 3)
    kernels[-1], bases[-1] = (
        jnp.resize(a, (*a.shape[:3], outputs)) for a in (kernels[-1], bases[-1])
    )
    biases[-1] = jnp.resize(biases[-1], outputs)
    check((x, kernels, bases, biases, mask), (8, 8), implementation, layers=3)


@pytest.mark.parametrize("fill", [0, 1])
def test_masks_of_nothing_and_of_all(implementation, fill):
    x, kernels, bases, biases, mask = problem(64, 3)
    check((x, kernels, bases, biases, jnp.full_like(mask, fill)), (8, 8), implementation, layers=3)


def test_more_blocks_than_a_wave_holds(implementation):
    given = problem(32, 3, hw=(170, 330), images=1)
    check(given, (8, 8), implementation, layers=3)


def test_the_same_result_each_time(implementation):
    x, kernels, bases, biases, mask = problem(64, 5, hw=(96, 96))
    index = js.tile_index(mask, (8, 8))
    run = jax.jit(
        lambda x: js.masked_conv_stack(
            x, kernels, index, bases, biases=biases, residuals=RESIDUALS,
            implementation=implementation,
        )
    )  # fmt: skip
    first = run(x)
    for _ in range(5):
        for one, other in zip(first, run(x), strict=True):
            np.testing.assert_array_equal(one, other)


def test_on_a_hopper_it_is_one_call():
    x, kernels, bases, biases, mask = problem(64, 4, hw=(16, 16))
    index = js.tile_index(mask, (8, 8))
    traced = jax.jit(lambda x: js.masked_conv_stack(x, kernels, index, bases, biases=biases))
    text = traced.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    if register.module("cuda")[0] is None:
        pytest.skip("this build has no CUDA module")
    assert text.count("stablehlo.custom_call") == 1


def test_explain_says_why_it_goes_layer_by_layer():
    x, kernels, bases, _, mask = problem(16, 2, dtype=jnp.float32)
    said = str(js.explain(lambda x: js.masked_conv_stack(x, kernels, mask, bases), x))
    why = "float32, 16 channels" if jax.default_backend() == "gpu" else "it is CUDA's"
    assert f"not one launch: {why}" in said
    assert said.count("masked_conv float32") == 2
