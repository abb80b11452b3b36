"""Masks through windows on packed words, against loops over pixels and taps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mask.test_reach import brute

import jaxsparse as js
from jaxsparse.mask import random_pixels

pairs = st.tuples(st.integers(1, 4), st.integers(1, 6))
pad = st.tuples(st.integers(-1, 3), st.integers(-1, 3))


@settings(max_examples=25, deadline=None)
@given(
    in_hw=st.tuples(st.integers(4, 12), st.sampled_from([4, 31, 33, 64, 97])),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=pairs,
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 40)),
    pads=st.tuples(pad, st.tuples(st.integers(-1, 40), st.integers(-1, 40))),
    seed=st.integers(0, 9),
)
def test_against_loops(in_hw, kernel, strides, dilation, pads, seed):
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rooms = [n + low + high for n, (low, high) in zip(in_hw, pads, strict=True)]
    out_hw = tuple(
        (room - span) // s + 1 if room >= span else 0
        for room, span, s in zip(rooms, spans, strides, strict=True)
    )
    common = {"kernel": kernel, "strides": strides, "pads": pads, "dilation": dilation}
    mask = random_pixels((2, *in_hw), 0.2, seed=seed)
    out = js.mask.propagate(mask, kernel, strides, pads, dilation)
    assert out.shape == (2, *out_hw)
    np.testing.assert_array_equal(out, brute(mask, in_hw, out_hw, forward=True, **common))
    mask = random_pixels((2, *out_hw), 0.2, seed=seed)
    back = js.mask.needed(mask, kernel, strides, pads, dilation, in_shape=in_hw)
    np.testing.assert_array_equal(back, brute(mask, in_hw, out_hw, forward=False, **common))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", 1, ((0, 2), (1, 0))])
@pytest.mark.parametrize("strides", [1, 2, (1, 3), (2, 4)])
def test_sizes_are_those_of_a_convolution(padding, strides):
    mask = random_pixels((1, 11, 13), 0.1, seed=1)
    window = {"kernel_size": (3, 4), "strides": strides, "padding": padding, "dilation": (1, 2)}
    out = js.mask.propagate(mask, **window)
    options = {"strides": strides, "padding": padding, "dilation": (1, 2)}
    x, kernel = jnp.asarray(mask, jnp.float32)[..., None], jnp.ones((3, 4, 1, 1))
    everywhere = jnp.ones(out.shape, bool)
    y = js.masked_conv(x, kernel, everywhere, **options, implementation="reference")
    np.testing.assert_array_equal(out, y[..., 0] > 0.5)
    read = jax.grad(lambda x: js.masked_conv(x, kernel, out, **options).sum())(x)
    back = js.mask.needed(out, **window, in_shape=(11, 13))
    np.testing.assert_array_equal(back, read[..., 0] != 0)
    default = js.mask.needed(out, **window)
    assert js.mask.propagate(default, **window).shape == out.shape


@pytest.mark.parametrize("reduce", ["any", "all"])
def test_blocks_and_poolings(reduce):
    mask = random_pixels((2, 3, 37, 70), 0.6)
    full = getattr(np, reduce)
    for factor in (1, 2, 3, 4, (5, 8)):
        rows, columns = (factor, factor) if isinstance(factor, int) else factor
        got = js.mask.downsample(mask, factor, reduce=reduce)
        want = [
            [
                full(mask[..., y : y + rows, x : x + columns], (-2, -1))
                for x in range(0, 70, columns)
            ]
            for y in range(0, 37, rows)
        ]
        np.testing.assert_array_equal(got, np.moveaxis(np.asarray(want), (0, 1), (2, 3)))
    pooled = js.mask.pool(mask, (3, 2), (2, 3), reduce=reduce)
    want = [
        [full(mask[..., y : y + 3, x : x + 2], (-2, -1)) for x in range(0, 69, 3)]
        for y in range(0, 35, 2)
    ]
    np.testing.assert_array_equal(pooled, np.moveaxis(np.asarray(want), (0, 1), (2, 3)))
    same = js.mask.pool(np.ones((1, 5, 5), bool), 3, padding="SAME", reduce=reduce)
    assert same.all()


@pytest.mark.parametrize("radius", [0, 1, (0, 3), 40])
def test_dilate(radius):
    mask = random_pixels((2, 9, 70), 0.01, seed=3)
    rows, columns = (radius, radius) if isinstance(radius, int) else radius
    want = np.zeros_like(mask)
    for b, y, x in np.argwhere(mask):
        want[b, max(y - rows, 0) : y + rows + 1, max(x - columns, 0) : x + columns + 1] = True
    np.testing.assert_array_equal(js.mask.dilate(mask, radius), want)


def test_batches_jit_and_vectors():
    masks = random_pixels((6, 9, 40), 0.2).reshape(3, 2, 9, 40)
    for run in (
        lambda m: js.mask.propagate(m, 3, 2),
        lambda m: js.mask.needed(m, 3, (2, 3)),
        lambda m: js.mask.downsample(m, 3),
        lambda m: js.mask.pool(m, 2),
    ):
        every = run(masks)
        mapped = jax.jit(jax.vmap(jax.vmap(run)))(masks)
        np.testing.assert_array_equal(mapped, every)
        np.testing.assert_array_equal(run(masks[0, 0]), every[0, 0])
        assert run(masks[:0]).shape == (0, *every.shape[1:])


def test_bad_arguments():
    mask = np.ones((2, 5, 6), bool)
    for kind, words, call in (
        (
            TypeError,
            "mask has dtype float32; .* `mask != 0`",
            lambda: js.mask.propagate(mask.astype("f4"), 3),
        ),
        (TypeError, "mask must be an array, not list", lambda: js.mask.dilate([[True]], 1)),
        (ValueError, "needs at least 2 axes", lambda: js.mask.downsample(mask[0, 0], 2)),
        (ValueError, "kernel_size=0", lambda: js.mask.propagate(mask, 0)),
        (ValueError, "radius=-1", lambda: js.mask.dilate(mask, -1)),
        (ValueError, "factor=0", lambda: js.mask.downsample(mask, 0)),
        (ValueError, "reduce='most'", lambda: js.mask.pool(mask, 2, reduce="most")),
        (ValueError, r"in_shape=\(9, 9\) gives", lambda: js.mask.needed(mask, 3, in_shape=(9, 9))),
        (
            TypeError,
            "strides is traced",
            lambda: jax.jit(lambda s: js.mask.propagate(mask, 3, s))(2),
        ),
    ):
        with pytest.raises(kind, match=words):
            call()
