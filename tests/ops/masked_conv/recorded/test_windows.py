"""Outputs that see decided pixels only: found, counted and written without a product."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.windows import Known, known_windows
from jaxsparse.recorder import MIXED, UPPER, ZERO

WINDOWS = [
    ((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((3, 2), (2, 1), ((0, 2), (3, 0)), (1, 2)),
    ((2, 3), (2, 2), ((-1, 0), (2, -1)), (1, 1)),
]


def draw(rng, place, mixed, outputs, segments=1) -> Any:
    """The geometry, codes of two images of 40 x 37, a cover of two thirds, a kernel, a bias."""
    window, strides, padding, dilation = place
    geometry = Geometry(strides, padding, dilation, (1, 1), 1)
    kinds = rng.choice(
        [MIXED, ZERO, UPPER], (2, 10, 10, 1), p=[mixed, 0.5 - mixed / 2, 0.5 - mixed / 2]
    )
    codes = kinds.repeat(4, 1).repeat(4, 2)[:, :, :37].repeat(segments, 3).astype(np.uint8)
    rows, columns = geometry.out_size((40, 37), window)
    cover = rng.random((2, rows, columns)) < 0.66
    kernel = rng.standard_normal((window[0] * window[1], 70, outputs)).astype(np.float32) / 8
    bias = rng.standard_normal(outputs).astype(np.float32)
    return geometry, jnp.asarray(codes), jnp.asarray(cover), jnp.asarray(kernel), jnp.asarray(bias)


def oracle(geometry, window, codes, cover, kernel, bias, base) -> Any:
    """Pixel by pixel in float64, without an activation; and which outputs are near."""
    codes, cover = np.asarray(codes), np.asarray(cover)
    sums = 6.0 * np.asarray(kernel, np.float64).sum(1)
    out, near = np.array(base, np.float64), np.zeros(cover.shape, bool)
    for b, oy, ox in np.argwhere(cover):
        total = np.asarray(bias, np.float64).copy()
        for t, (ky, kx) in enumerate(np.ndindex(*window)):
            y = oy * geometry.strides[0] + ky * geometry.dilation[0] - geometry.padding[0][0]
            x = ox * geometry.strides[1] + kx * geometry.dilation[1] - geometry.padding[1][0]
            if not (0 <= y < codes.shape[1] and 0 <= x < codes.shape[2]):
                continue
            pixel = codes[b, y, x]
            near[b, oy, ox] |= not ((pixel == ZERO).all() or (pixel == UPPER).all())
            if (pixel == UPPER).all():
                total += sums[t]
        if not near[b, oy, ox]:
            out[b, oy, ox] = total
    return out, near


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("outputs", [8, 13, 300])
@pytest.mark.parametrize("place", WINDOWS)
def test_equals_pixel_by_pixel(implementation, rng, place, outputs, dtype):
    window = place[0]
    geometry, codes, cover, kernel, bias = draw(rng, place, 0.3, outputs, segments=2)
    base = jnp.asarray(rng.standard_normal((*cover.shape, outputs)), dtype)
    kernel = kernel.astype(dtype)
    known = Known(ConvParams(geometry, None, "default", dtype, implementation), window, 6.0)
    got, near = jax.jit(functools.partial(known_windows, known))(codes, cover, kernel, bias, base)
    want, seen = oracle(geometry, window, codes, cover, kernel, bias, np.asarray(base, np.float32))
    np.testing.assert_array_equal(near, seen)
    far = ~seen
    rtol = {"float32": 1e-5, "bfloat16": 5e-3, "float16": 1e-3}[dtype]
    np.testing.assert_allclose(np.asarray(got, np.float32)[far], want[far], rtol, 1e-4)
    free, near = known_windows(known, codes, cover, kernel, bias, None)
    np.testing.assert_array_equal(near, seen)
    want[~np.asarray(cover)] = 0
    np.testing.assert_allclose(np.asarray(free, np.float32)[far], want[far], rtol, 1e-4)


def test_where_nearly_all_are_near_all_may_be(implementation, rng):
    geometry, codes, cover, kernel, bias = draw(rng, WINDOWS[0], 0.8, 8)
    p = ConvParams(geometry, "relu6", "default", "float32", implementation)
    _, near = known_windows(Known(p, (3, 3), 6.0), codes, cover, kernel, bias, None)
    _, seen = oracle(geometry, (3, 3), codes, cover, kernel, bias, np.zeros((*cover.shape, 8)))
    assert (np.asarray(near) >= seen).all()
    assert (np.asarray(near) <= np.asarray(cover)).all()
    x = jnp.asarray(rng.random((2, 40, 37, 8)) * 5 + 0.5, jnp.float32)
    recorder = js.recorder.Recorder(codes, 8, 6.0)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 8)) / 8, jnp.float32)
    options = {"implementation": implementation, "precision": "highest"}
    got = js.masked_conv(x, kernel, cover, recorder=recorder, **options)
    want = js.masked_conv(recorder.fill(x), kernel, cover, **options)
    np.testing.assert_allclose(got, want, atol=1e-4)


# Not in the op suite: known_windows is not an op of the API.
@pytest.mark.parametrize("in_axes", [(0, 0, None, None), (0, None, None, None), (0, None, 0, None)])
def test_vmap(implementation, rng, in_axes):
    drawn = [draw(rng, WINDOWS[0], 0.3, 8) for _ in range(3)]
    p = ConvParams(drawn[0][0], "relu6", "default", "float32", implementation)
    arrays = [jnp.stack([d[i] for d in drawn]) for i in (1, 2, 3, 4)]
    given = [a if axis == 0 else a[0] for a, axis in zip(arrays, in_axes, strict=True)]

    def f(codes, cover, kernel, bias):
        out, near = known_windows(Known(p, (3, 3), 6.0), codes, cover, kernel, bias, None)
        return jnp.where(near[..., None], 0, out), near

    each = [
        f(*(a[i] if axis == 0 else a[0] for a, axis in zip(arrays, in_axes, strict=True)))
        for i in range(3)
    ]
    out, near = jax.jit(jax.vmap(f, in_axes))(*given)
    np.testing.assert_allclose(out, jnp.stack([e[0] for e in each]), atol=1e-5)
    np.testing.assert_array_equal(near, jnp.stack([e[1] for e in each]))


def test_derivatives_are_the_same_bit_by_bit(implementation, rng):
    geometry, codes, cover, kernel, bias = draw(rng, WINDOWS[0], 0.2, 8)
    p = ConvParams(geometry, "silu", "default", "float32", implementation)
    base = jnp.asarray(rng.standard_normal((*cover.shape, 8)), jnp.float32)
    weights = jnp.asarray(rng.standard_normal((*cover.shape, 8)), jnp.float32)
    _, seen = oracle(geometry, (3, 3), codes, cover, kernel, bias, base)

    def ours(kernel, bias, base):
        out, near = known_windows(Known(p, (3, 3), 6.0), codes, cover, kernel, bias, base)
        return jnp.where(near[..., None], 0, out * weights).sum()

    def plain(kernel, bias, base):
        pads = [(0, 0), (1, 1), (1, 1)]
        full = np.pad(np.asarray(codes)[..., 0] == UPPER, pads)
        taps = [full[:, y : y + 40, x : x + 37] for y in range(3) for x in range(3)]
        bits = jnp.stack(taps, -1).astype(jnp.float32)
        far = jax.nn.silu(jnp.dot(bits, 6 * kernel.sum(1), precision="highest") + bias)
        out = jnp.where((cover & ~seen)[..., None], far, base)
        return jnp.where(jnp.asarray(seen)[..., None], 0, out * weights).sum()

    grads = jax.jit(jax.grad(ours, (0, 1, 2)))
    got = grads(kernel, bias, base)
    for a, b in zip(got, jax.grad(plain, (0, 1, 2))(kernel, bias, base), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-2)
    for a, b in zip(got, grads(kernel, bias, base), strict=True):
        np.testing.assert_array_equal(a, b)


def test_stored_values_are_read(implementation, rng):
    """What a convolution recorded need not be filled in, and derivatives take it as constant."""
    x = jnp.asarray(rng.random((1, 12, 12, 8)) * 8 - 1, jnp.float32)
    x = jnp.where(jnp.asarray(rng.random((1, 12, 12, 1)) < 0.7), jnp.round(x / 9) * 9, x)
    k1, k2 = (
        jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((1, 1, 8, 8), (3, 3, 8, 4))
    )
    mask = jnp.ones((1, 12, 12), bool)
    options = {"implementation": implementation, "precision": "highest"}
    y, found = js.masked_conv(x, k1 * 3, mask, activation="relu6", record=True, **options)
    assert found.stored
    assert 0 < float(found.share(MIXED)) < 1
    told = js.recorder.Recorder(found.codes, found.segment, found.upper)

    def total(y, recorder):
        return (js.masked_conv(y, k2, mask, recorder=recorder, **options) ** 2).sum()

    for f in (total, jax.grad(total)):
        np.testing.assert_allclose(f(y, found), f(y, told), rtol=1e-4, atol=1e-3)
