"""The windows executor on CUDA: every variant, chunks, small images together, both layouts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.pruned_conv.api import prepare
from jaxsparse.pruned.executors.conv_tiles import VARIANTS, best
from jaxsparse.pruned.plan import Tuned

pytestmark = pytest.mark.gpu
LAYOUTS = ["NHWC", "NCHW"]


def kernel_of(rng, shape, sparsity=0.8):
    """A kernel with an empty output and a full one, where there are enough."""
    kernel = np.where(rng.random(shape) >= sparsity, rng.standard_normal(shape), 0)
    if shape[-1] > 3:
        kernel[..., 1], kernel[..., 2] = 0, 0.25
    return (kernel / np.sqrt(np.prod(shape[:3]))).astype(np.float32)


def assert_close(got, want, sizes, eps):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    bound = eps * abs(want) + 1e-6 * np.asarray(sizes, np.float64) + 1e-6
    np.testing.assert_array_less(abs(got - want), bound)


def dense(x, kernel, layout, **options):
    """In float32, and the sum of the sizes of its products."""
    plan = js.pruned.inspect(kernel, kind="conv")
    options |= {"layout": layout, "implementation": "reference", "precision": "highest"}
    sizes = js.pruned_conv(abs(x), js.pruned.inspect(abs(kernel), kind="conv"), **options)
    return js.pruned_conv(x, plan, **options), sizes


def demanded(plan, x, layout, pick, **options):
    """The plan with one of the tiles that can run this call."""
    params, x = prepare(x, plan, layout=layout, **options)
    problem = params.problem("cuda", x)
    found = [at.tile for _, at in best(problem) if pick(at)]
    assert found
    facts = (problem.x_shape, problem.dtype, problem.geometry, problem.channels_first)
    tuned = Tuned("cuda", *facts, "windows", found[0].key, 0.0, problem.precision)
    return dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, tuned=(tuned,)))


def check(rng, image, kernel, layout, pick, **options):
    x = rng.standard_normal(image).astype(np.float32)
    x = jnp.asarray(x.transpose(0, 3, 1, 2) if layout == "NCHW" else x)
    plan = demanded(js.pruned.inspect(kernel, kind="conv"), x, layout, pick, **options)
    run = jax.jit(lambda x: js.pruned_conv(x, plan, layout=layout, **options))
    with js.config(variant="windows"):
        got = run(x)
    assert_close(got, *dense(x, kernel, layout, **options), 2e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunks", [1, 3])
def test_variants(rng, variant, layout, chunks):
    def pick(layout):
        tile = layout.tile
        return (tile.outputs, tile.positions) == variant and layout.chunks >= chunks

    kernel = kernel_of(rng, (3, 3, 52, 37))
    check(rng, (3, 13, 17, 52), kernel, layout, pick)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_images_share_a_block(rng, layout):
    kernel = kernel_of(rng, (3, 3, 40, 64))
    check(rng, (5, 7, 7, 40), kernel, layout, lambda at: at.tile.images > 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_in_turn(rng, layout):
    kernel = kernel_of(rng, (3, 3, 16, 64))
    check(rng, (2, 9, 9, 16), kernel, layout, lambda at: at.tile.rounds > 2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strides", [1, 2, (3, 1)])
def test_pieces_of_a_wide_image(rng, layout, strides):
    kernel = kernel_of(rng, (3, 5, 8, 24))
    check(rng, (1, 11, 1100, 8), kernel, layout, lambda at: at.tile.cols == 64, strides=strides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("out", [None, jnp.float32])
@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu", "gelu"])
def test_16_bits(rng, layout, dtype, out, activation):
    kernel = jnp.asarray(kernel_of(rng, (3, 3, 24, 40)), dtype)
    image = (2, 24, 10, 12) if layout == "NCHW" else (2, 10, 12, 24)
    x = jnp.asarray(rng.standard_normal(image), dtype)
    bias = jnp.asarray(rng.standard_normal(40), jnp.float32)
    plan = js.pruned.inspect(kernel, kind="conv")
    with js.config(variant="windows"):
        got = js.pruned_conv(
            x, plan, bias=bias, activation=activation, layout=layout, preferred_element_type=out
        )
    assert got.dtype == (out or x.dtype)
    wide = (x.astype(jnp.float32), np.asarray(kernel, np.float32))
    want, sizes = dense(*wide, layout, bias=bias, activation=activation)
    assert_close(got.astype(jnp.float32), want, sizes, 1e-5 if out else float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nan_reaches_only_what_keeps_a_weight_for_it(rng, layout):
    kernel = kernel_of(rng, (3, 3, 12, 20))
    x = rng.standard_normal((2, 8, 9, 12)).astype(np.float32)
    x[1, 4, 5, 3] = np.nan
    want = np.zeros((2, 8, 9, 20), bool)
    for ky in range(3):
        for kx in range(3):
            want[1, 5 - ky, 6 - kx] |= kernel[ky, kx, 3] != 0
    if layout == "NCHW":
        x, want = x.transpose(0, 3, 1, 2), want.transpose(0, 3, 1, 2)
    with js.config(variant="windows"):
        got = js.pruned_conv(jnp.asarray(x), js.pruned.inspect(kernel, kind="conv"), layout=layout)
    np.testing.assert_array_equal(np.isnan(got), want)


def test_values_as_an_operand(rng):
    kernel = kernel_of(rng, (3, 3, 12, 20))
    plan = js.pruned.inspect(kernel, kind="conv")
    x = jnp.asarray(rng.standard_normal((2, 8, 9, 12)), jnp.float32)
    with js.config(variant="windows"):
        run = jax.jit(lambda x, plan: js.pruned_conv(x, plan))
        for scale in (1.0, -3.0):
            got = run(x, jax.tree.map(lambda v, s=scale: v * np.float32(s), plan))
            want, sizes = dense(x, np.float32(scale) * kernel, "NHWC")
            assert_close(got, want, sizes, 2e-6)


def test_a_product_is_an_image_of_one_row(rng):
    w = kernel_of(rng, (1, 1, 70, 50))[0, 0]
    x = rng.standard_normal((300, 70)).astype(np.float32)
    with js.config(variant="windows"):
        got = js.pruned_matmul(jnp.asarray(x), js.pruned.inspect(w))
    exact = x.astype(np.float64)
    assert_close(got, exact @ w, abs(exact) @ abs(w), 2e-6)


def test_why_it_cannot_run(rng):
    plan = js.pruned.inspect(kernel_of(rng, (3, 3, 4, 8)), kind="conv")
    x = jnp.zeros((1, 70, 70, 4))
    with js.config(variant="windows"), pytest.raises(ValueError, match="strides up to 31"):
        js.pruned_conv(x, plan, strides=32, implementation="cuda")
    plain = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    tuned = Tuned("cuda", x.shape, "float32", plain, False, "windows", (1, 2, 3), 0.0)
    wrong = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, tuned=(tuned,)))
    with pytest.raises(ValueError, match="nine sizes"):
        js.pruned_conv(x, wrong, implementation="cuda")
