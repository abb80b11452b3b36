"""Convolutions that pass a recorder on: exact codes, and decided pixels that are never read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.recorder import MIXED, UPPER, ZERO

TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-3}


def feature_map(rng, shape, dtype="float32"):
    """Pixels that are zero, at the bound, or mixed."""
    x = rng.random(shape) * 6
    kind = rng.choice(4, (*shape[:3], 1), p=[0.4, 0.2, 0.3, 0.1])
    x = np.where(kind == 0, 0.0, np.where(kind == 1, 6.0, x))
    x[..., : shape[3] // 2] = np.where(kind == 3, 0.0, x[..., : shape[3] // 2])
    return jnp.asarray(x, dtype)


def kernels(rng, shape, dtype="float32"):
    drawn = rng.standard_normal(shape) / np.sqrt(np.prod(shape[:3]))
    return jnp.asarray(drawn, dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("segment", [True, 4, 5])
def test_codes_are_exact(implementation, rng, dtype, segment):
    x, kernel = feature_map(rng, (2, 9, 8, 6), dtype), kernels(rng, (3, 3, 6, 16), dtype) * 3
    mask = jnp.asarray(rng.random((2, 9, 8)) < 0.7)
    bias = jnp.asarray(rng.choice([-8.0, 0.0, 20.0], 16), jnp.float32)
    options = {"activation": "relu6", "bias": bias, "implementation": implementation}
    out, recorder = js.masked_conv(x, kernel, mask, record=segment, **options)
    np.testing.assert_array_equal(out, js.masked_conv(x, kernel, mask, **options))
    assert recorder.segment == (16 if segment is True else segment)
    want = js.recorder.probe(out, recorder.segment, 6.0)
    np.testing.assert_array_equal(recorder.codes, want.codes)
    assert recorder.codes.shape == (2, 9, 8, -(-16 // recorder.segment))
    assert bool((recorder.codes == ZERO).any())


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 3, 8, 16), {}),
        ((1, 1, 8, 12), {"bias": True}),
        ((3, 3, 8, 8), {"strides": 2, "activation": "relu6"}),
        ((3, 3, 1, 8), {"groups": 8, "activation": "relu6", "bias": True}),
        ((3, 2, 8, 8), {"padding": "VALID", "dilation": 2}),
        ((3, 3, 8, 8), {"padding": ((2, 0), (0, 3)), "activation": "silu"}),
    ],
)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_decided_pixels_are_not_read(implementation, rng, dtype, shape, options):
    x, kernel = feature_map(rng, (2, 12, 11, 8), dtype), kernels(rng, shape, dtype)
    options = {**options, "implementation": implementation}
    if options.pop("bias", False):
        options["bias"] = jnp.asarray(rng.standard_normal(shape[3]), jnp.float32)
    size = jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(
            x,
            k,
            np.broadcast_to(options.get("strides", 1), 2).tolist(),
            options.get("padding", "SAME"),
            rhs_dilation=np.broadcast_to(options.get("dilation", 1), 2).tolist(),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=options.get("groups", 1),
        ),
        x,
        kernel,
    ).shape
    mask = jnp.asarray(rng.random(size[:3]) < 0.6)
    options["precision"] = "highest"  # float32 in float32 on a GPU, too
    recorder = js.recorder.probe(x, 4, 6.0)
    whole = (recorder.codes == recorder.codes[..., :1]).all(-1) & (recorder.codes[..., 0] != MIXED)
    assert 0.4 < float(whole.mean()) < 0.8
    poisoned = jnp.where(whole[..., None], jnp.nan, x)
    got = jax.jit(lambda x, r: js.masked_conv(x, kernel, mask, recorder=r, **options))(
        poisoned, recorder
    )
    want = js.masked_conv(x, kernel, mask, **options)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(want, np.float32), atol=4 * TOLERANCE[dtype]
    )


def test_two_layers_and_their_derivatives(implementation, rng):
    x = feature_map(rng, (1, 10, 10, 4))
    k1, k2 = kernels(rng, (3, 3, 4, 8)) * 4, kernels(rng, (3, 3, 8, 4))
    mask = jnp.ones((1, 10, 10), bool)

    def net(known, x, k1, k2):
        options = {"activation": "relu6", "implementation": implementation, "precision": "highest"}
        y, recorder = js.masked_conv(x, k1, mask, record=True, **options)
        y = js.masked_conv(y, k2, mask, recorder=recorder if known else None, **options)
        return (y**2).sum()

    got = jax.grad(net, (1, 2, 3))(True, x, k1, k2)
    want = jax.grad(net, (1, 2, 3))(False, x, k1, k2)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3 * max(1.0, float(jnp.abs(b).max())))


# Not in the op suite: the recorder of one result is an operand of the next.
def test_vmap(implementation, rng):
    x, kernel = feature_map(rng, (6, 7, 7, 4)).reshape(3, 2, 7, 7, 4), kernels(rng, (3, 3, 4, 4))
    mask = jnp.asarray(rng.random((2, 7, 7)) < 0.7)

    def f(x):
        options = {"activation": "relu6", "implementation": implementation}
        y, recorder = js.masked_conv(x, kernel, mask, record=True, **options)
        return js.masked_conv(y, kernel, mask, recorder=recorder, **options)

    np.testing.assert_allclose(
        jax.jit(jax.vmap(f))(x), jnp.stack([f(each) for each in x]), atol=1e-4
    )


def test_bad_arguments(rng):
    x, kernel, mask = jnp.zeros((1, 4, 4, 8)), jnp.zeros((1, 1, 8, 8)), jnp.ones((1, 4, 4), bool)
    with pytest.raises(ValueError, match="takes activation='relu6'"):
        js.masked_conv(x, kernel, mask, record=True)
    for bad in (0, -1, 1.5, "yes"):
        with pytest.raises(ValueError, match="record="):
            js.masked_conv(x, kernel, mask, activation="relu6", record=bad)
    with pytest.raises(TypeError, match="recorder must be"):
        js.masked_conv(x, kernel, mask, recorder=np.zeros(3))
    with pytest.raises(ValueError, match="recorder has codes"):
        js.masked_conv(x, kernel, mask, recorder=js.recorder.probe(x[:, :3], 8, 6.0))


def test_everything_saturates(implementation):
    x, kernel = jnp.full((1, 5, 5, 8), 6.0), jnp.ones((3, 3, 8, 8))
    mask = jnp.ones((1, 5, 5), bool)
    options = {"activation": "relu6", "implementation": implementation}
    first, recorder = js.masked_conv(x, kernel, mask, record=True, **options)
    assert float(recorder.share(UPPER)) == 1.0
    again = js.masked_conv(first * jnp.nan, kernel, mask, recorder=recorder, **options)
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu6"])
def test_a_residual_is_read_at_active_pixels_only(implementation, rng, activation):
    """What lies elsewhere may be NaN, also for derivatives."""
    x, kernel = feature_map(rng, (1, 6, 6, 4)), kernels(rng, (3, 3, 4, 8))
    mask = jnp.asarray(rng.random((1, 6, 6)) < 0.6)
    residual = jnp.asarray(rng.standard_normal((1, 6, 6, 8)), jnp.float32)
    residual = jnp.where(mask[..., None], residual, jnp.nan)
    options = {"activation": activation, "implementation": implementation, "precision": "highest"}

    def total(kernel, residual, recorder):
        y = js.masked_conv(x, kernel, mask, residual=residual, recorder=recorder, **options)
        return (y * y).sum()

    grads = jax.grad(total, (0, 1))
    got = grads(kernel, residual, js.recorder.probe(x, 4, 6.0))
    for found, want in zip(got, grads(kernel, residual, None), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "window", "options"),
    [
        ((1, 1, 1, 4), (3, 3), {"padding": "VALID"}),
        ((1, 8, 3, 4), (9, 1), {"padding": "VALID", "strides": (2, 1)}),
        ((0, 5, 5, 4), (3, 3), {}),
    ],
)
def test_nothing_to_compute(implementation, rng, shape, window, options):
    x, kernel = feature_map(rng, shape), kernels(rng, (*window, 4, 8))
    options = {**options, "implementation": implementation}
    like = jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(
            x,
            k,
            options.get("strides", (1, 1)),
            options.get("padding", "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        x,
        kernel,
    )
    mask = jnp.ones(like.shape[:3], bool)
    assert 0 in like.shape
    out = js.masked_conv(x, kernel, mask, recorder=js.recorder.probe(x, 4, 6.0), **options)
    assert out.shape == like.shape


def test_explain_counts_what_a_recorder_leaves(implementation, rng):
    x = jnp.asarray(rng.random((1, 32, 32, 8)) * 4 + 1, jnp.float32).at[:, 16:].set(0)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 8)), jnp.float32)
    mask = jnp.ones((1, 32, 32), bool)
    recorder = js.recorder.probe(x, 8, 6.0)

    def run(x):
        return js.masked_conv(x, kernel, mask, recorder=recorder, implementation=implementation)

    (call,) = js.explain(run, x).calls
    assert call.op == "masked_conv"
    assert 0 < call.counts[0] < call.n_tiles
