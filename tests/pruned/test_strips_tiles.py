"""Every kind of tile of the CPU's executor gives XLA's convolution."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned import strips
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.plan import Tuned

IMAGES = [(1, 11, 20, 18), (2, 9, 7, 5), (1, 17, 33, 3), (1, 1, 5, 20)]


def problem_of(rng, image, window, strides, layout, outputs=21):
    """A call, its weight and its input."""
    shape = (*window, image[3], outputs)
    kernel = np.where(rng.random(shape) < 0.2, rng.standard_normal(shape), 0).astype(np.float32)
    pruned = js.pruned.inspect(kernel, kind="conv")
    pads = tuple((w // 2, (w - 1) // 2) for w in window)
    geo = Geometry((strides, strides), pads, (1, 1), (1, 1), 1)
    first = layout == "NCHW"
    call = Problem(pruned.pattern, "cpu", image, "float32", "float32", "default", geo, first)
    return call, pruned, kernel, rng.standard_normal(image, np.float32)


def tiles_of(call, most=2):
    """A few tiles of each number of bands, shared or not, the widest and the narrowest pitch."""
    geo = call.geometry
    every = list(strips.candidates(call.out_hw, call.pattern.window[1], geo))
    kinds = {}
    for tile in every:
        kinds.setdefault((tile.bands, tile.shared, tile.pitch % strips.LANES == 0), []).append(tile)
    picked = []
    for tiles in kinds.values():
        ordered = sorted(tiles, key=lambda tile: (tile.rows, tile.pitch))
        picked += ordered[:: max(len(ordered) // most, 1)]
    return [t for t in picked if strips.fits(t, call.pattern.window, geo)]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("window", "strides"), [((3, 3), 1), ((3, 3), 2), ((1, 1), 1)])
@pytest.mark.parametrize("image", IMAGES)
def test_every_kind_of_tile(rng, image, window, strides, layout):
    call, pruned, kernel, x = problem_of(rng, image, window, strides, layout)
    want = jax.lax.conv_general_dilated(
        x, kernel, (strides,) * 2, call.geometry.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    given = jnp.asarray(x.transpose(0, 3, 1, 2) if layout == "NCHW" else x)
    tiles = tiles_of(call)
    assert {tile.bands for tile in tiles} >= {b for b in strips.BANDS if b <= call.out_hw[0]}
    for tile in tiles:
        chosen = (tile.vectors, tile.pitch, tile.rows, tile.shared, 16, 2, tile.bands)
        key = (call.platform, call.x_shape, call.dtype, call.geometry, call.channels_first)
        tuned = Tuned(*key, "strips", chosen, 0.0, call.precision)
        plan = dataclasses.replace(pruned.plan, tuned=(tuned,))
        frozen = dataclasses.replace(pruned, plan=plan)
        got = js.pruned_conv(
            given, frozen, strides=strides, padding=call.geometry.padding, layout=layout
        )
        got = got.transpose(0, 2, 3, 1) if layout == "NCHW" else got
        assert_close(got, want, "float32")


def test_a_row_next_to_a_band_is_not_read(rng):
    """Pixels past a band's edge are padding, not the neighbour's."""
    call, pruned, kernel, x = problem_of(rng, (1, 8, 16, 4), (3, 3), 1, "NHWC")
    x[:, 4:] = np.nan  # rows that outputs 0 to 2 do not read
    tile = strips.Tile(4, 16, 4, 0, 2)
    chosen = (tile.vectors, tile.pitch, tile.rows, tile.shared, 16, 1, tile.bands)
    key = (call.platform, call.x_shape, call.dtype, call.geometry, call.channels_first)
    plan = dataclasses.replace(
        pruned.plan, tuned=(Tuned(*key, "strips", chosen, 0.0, call.precision),)
    )
    frozen = dataclasses.replace(pruned, plan=plan)
    got = np.asarray(js.pruned_conv(jnp.asarray(x), frozen, padding=call.geometry.padding))
    want = jax.lax.conv_general_dilated(
        np.nan_to_num(x),
        kernel,
        (1, 1),
        call.geometry.padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    assert_close(got[:, :3], want[:, :3], "float32")


@pytest.mark.parametrize(
    "chosen", [(7, 16, 7, 1, 16, 1, 2), (7, 16, 7, 0, 16, 1, 3), (7, 16, 7, 0, 16), (7, 16)]
)
def test_tunables_that_are_none(rng, chosen):
    call = problem_of(rng, (1, 14, 14, 4), (3, 3), 1, "NHWC")[0]
    with pytest.raises(ValueError, match="strips"):
        strips.pack(call, chosen)


def test_tunables_from_before_bands(rng):
    call = problem_of(rng, (1, 14, 14, 4), (3, 3), 1, "NHWC")[0]
    before, now = strips.pack(call, (7, 16, 7, 0, 4, 1)), strips.pack(call, (7, 16, 7, 0, 4, 1, 1))
    assert before.tile == now.tile
