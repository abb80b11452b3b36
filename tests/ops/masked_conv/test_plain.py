"""The kernels of plain calls (the GPU's choice on the device): less code, the same numbers as the
kernel for every call gives.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.test_device import DTYPES, PLATFORM, names

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv import device as masked_conv_device
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.costs import EVERY, Candidate

pytestmark = pytest.mark.skipif(PLATFORM != "cuda", reason="a CPU has one kernel for all calls")
SHAPE = (2, 21, 37)


@pytest.fixture
def draw(rng):
    """(x, kernel, bias) in a dtype: sums of every sign, a NaN, and some past float16."""

    def make(dtype, window=3, stride=1, channels=64, outputs=264):
        x = rng.standard_normal((2, 21 * stride, 37 * stride, channels))
        x[1, 5, 9, 0] = np.nan
        kernel = rng.standard_normal((window, window, channels, outputs)) / 4
        kernel[..., 3] *= 3e4
        bias = jnp.asarray(rng.standard_normal(outputs), jnp.float32)
        return jnp.asarray(x, dtype), jnp.asarray(kernel, dtype), bias

    return make


def same_padding(window, stride):
    side = max(window - stride, 0)
    return Geometry((stride, stride), ((side // 2, side - side // 2),) * 2, (1, 1), (1, 1), 1)


def runs(index_of, geometry, activation, dtype, x, kernel, bias, base=None):
    """(name, plain result, the same by the kernel for every call) of each variant in a call of its
    own over its list and, where it may, over every tile.
    """
    params = ConvParams(geometry, activation, "default", dtype)
    nothing = jnp.zeros((*SHAPE, kernel.shape[3]), dtype)
    for row in js.variants("masked_conv"):
        if row.platform != PLATFORM or row.name not in names() or row.fields.get("mma"):
            continue
        if row.fields["tile_n"] > 64 and 2 * kernel.shape[3] <= row.fields["tile_n"]:
            continue
        index = index_of((8, 8) if row.fields["box"] else (1, 1))
        for place in (0,) if row.fields["split_k"] > 1 else (0, EVERY):
            only = (Candidate(row.name, row.number, place, (1.0, 0.0, float(place), 0.0, 0.0)),)

            def call(residual, only=only, index=index):
                return masked_conv_device.forward(
                    params, PLATFORM, only, *Operands(x, kernel, index, bias, base, residual)
                )

            both = (np.asarray(jax.jit(call)(r), np.float32) for r in (None, nothing))
            yield f"{row.name} {place}", *both


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_calls_give_the_same(rng, draw, dtype, activation):
    mask = jnp.asarray(rng.random(SHAPE) < 0.4)
    operands = draw(dtype)
    compared = 0
    for name, plain, general in runs(
        lambda tile: js.tile_index(mask, tile), same_padding(3, 1), activation, dtype, *operands
    ):
        np.testing.assert_array_equal(plain, general, err_msg=name)
        assert np.isnan(plain[np.asarray(mask)]).any(), name
        assert not plain[~np.asarray(mask)].any(), name
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize(
    ("window", "stride", "channels", "outputs"),
    [(1, 1, 256, 64), (3, 2, 64, 128), (5, 1, 32, 64), (3, 1, 32, 72)],
)
def test_windows_and_widths(rng, draw, window, stride, channels, outputs):
    mask = jnp.asarray(rng.random(SHAPE) < 0.3)
    base = jnp.asarray(rng.standard_normal((*SHAPE, outputs)), jnp.bfloat16)
    operands = draw("bfloat16", window, stride, channels, outputs)
    geometry = same_padding(window, stride)
    compared = 0
    for name, plain, general in runs(
        lambda tile: js.tile_index(mask, tile), geometry, "relu", "bfloat16", *operands, base
    ):
        np.testing.assert_array_equal(plain, general, err_msg=name)
        compared += 1
    assert compared >= 10


def pixels_of(ids, side, mask):
    """The active pixels of listed tiles of side x side."""
    lines, columns = (-(-n // side) for n in mask.shape[1:])
    found = np.zeros_like(mask)
    for i in ids:
        b, y, x = i // (lines * columns), i // columns % lines * side, i % columns * side
        found[b, y : y + side, x : x + side] = True
    return found & mask


def test_lists_that_overflow_or_name_no_tile(rng, draw):
    mask = rng.random(SHAPE) < 0.6
    stored = {}

    def index_of(tile):
        index = js.tile_index(jnp.asarray(mask), tile, capacity=13, ordered=True)
        stored[tile] = pixels_of(np.asarray(index.ids[4:]), tile[0], mask)
        ids = index.ids.at[:4].set(jnp.asarray([-1, -(2**31), 2**31 - 1, 2 * 21 * 37]))
        return dataclasses.replace(index, ids=ids)

    operands = draw("bfloat16")
    compared = 0
    for name, plain, general in runs(index_of, same_padding(3, 1), "relu", "bfloat16", *operands):
        np.testing.assert_array_equal(plain, general, err_msg=name)
        tile = (1, 1) if name.startswith("m") else (8, 8)
        want = mask if name.endswith(str(EVERY)) else stored[tile]
        np.testing.assert_array_equal(plain.any(-1), want, err_msg=name)
        compared += 1
    assert compared >= 20
