"""Packing of the windows executor, read back: panels, offsets and streams make the convolution."""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest

from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import against, ranked
from jaxsparse.pruned.executors.conv import CONV_EXECUTORS
from jaxsparse.pruned.executors.conv_tiles import VARIANTS, best
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.layouts.conv import LANES, Layout, Tile
from jaxsparse.pruned.layouts.conv_windows import deal_groups, pack_windows
from jaxsparse.pruned.layouts.quads import QUAD
from jaxsparse.pruned.pattern import Pattern


def source(at, stride, phase, pad, spread, size):
    n = at * stride + phase - pad
    return n // spread if n >= 0 and n % spread == 0 and n // spread < size else -1


def panel(x, layout, geometry, tile_at):
    """float[buffer]: a chunk as the kernel fills it; x float[images, channels, h, w]."""
    tile, (image0, y0, x0, first) = layout.tile, tile_at
    out = np.full(layout.buffer + tile.places, np.nan)
    out[: tile.places] = 0
    bits = [[i for i in range(31) if p >> i & 1] for p in layout.phases]
    size = layout.image_rows * layout.pitch
    for i in range(layout.planes * layout.plane):
        plane, at = divmod(i, layout.plane)
        image, at = divmod(at, size)
        row, column = divmod(at, layout.pitch)
        down, across = divmod(plane, len(bits[1]))
        y = source(y0 + row, geometry.strides[0], bits[0][down], geometry.padding[0][0],
                   geometry.lhs_dilation[0], x.shape[2])  # fmt: skip
        z = source(x0 + column, geometry.strides[1], bits[1][across], geometry.padding[1][0],
                   geometry.lhs_dilation[1], x.shape[3])  # fmt: skip
        exists = y >= 0 and z >= 0 and image < tile.images and image0 + image < len(x)
        for c in range(min(tile.chunk, x.shape[1] - first)):
            value = x[image0 + image, first + c, y, z] if exists else 0
            out[tile.places + c * layout.stride + i] = value
    return out


def run(x, pack, values, layout, geometry, n, out_hw):
    """float[images, n, h, w], as the kernel computes it."""
    tile, (height, width) = layout.tile, out_hw
    out = np.full((len(x), n, height, width), np.nan)
    padded = np.append(values, 0)[pack.order]
    slots = pack.rows.reshape(-1, tile.rounds, tile.outputs)
    counts = pack.extra.view("<u2").reshape(-1, tile.rounds, layout.chunks, tile.outputs)
    offsets = pack.indices.astype(np.int64)
    for image in range(0, len(x), tile.images):
        for y in range(0, height, tile.rows):
            for z in range(0, width, tile.cols):
                panels = [
                    panel(x, layout, geometry, (image, y, z, c * tile.chunk))
                    for c in range(layout.chunks)
                ]
                for stream, start in enumerate(pack.starts):
                    at = int(start) * QUAD
                    for turn in range(tile.rounds):
                        sums = np.zeros((tile.outputs, tile.places))
                        for chunk in range(layout.chunks):
                            for j in range(tile.outputs):
                                for _ in range(int(counts[stream, turn, chunk, j]) * QUAD):
                                    window = panels[chunk][offsets[at] :][: tile.places]
                                    sums[j] += padded[at] * window
                                    at += 1
                        for j, output in enumerate(slots[stream, turn]):
                            if output >= 0:
                                store(out, sums[j], output, layout, (image, y, z))
    return out


def store(out, sums, output, layout, tile_at):
    tile, (image, y, z) = layout.tile, tile_at
    for i in range(tile.images):
        for r in range(tile.rows):
            for c in range(tile.cols):
                if image + i < len(out) and y + r < out.shape[2] and z + c < out.shape[3]:
                    place = (i * layout.image_rows + r) * layout.pitch + c
                    assert place < tile.places
                    assert np.isnan(out[image + i, output, y + r, z + c])
                    out[image + i, output, y + r, z + c] = sums[place]


def direct(x, dense, geometry, out_hw):
    """The convolution by its definition; dense float[n, channels, kh, kw]."""
    (sh, sw), (dh, dw) = geometry.strides, geometry.dilation
    out = np.zeros((len(x), len(dense), *out_hw))
    for ky in range(dense.shape[2]):
        for kx in range(dense.shape[3]):
            for y in range(out_hw[0]):
                for z in range(out_hw[1]):
                    v = source(y, sh, ky * dh, geometry.padding[0][0], geometry.lhs_dilation[0],
                               x.shape[2])  # fmt: skip
                    u = source(z, sw, kx * dw, geometry.padding[1][0], geometry.lhs_dilation[1],
                               x.shape[3])  # fmt: skip
                    if v >= 0 and u >= 0:
                        out[:, :, y, z] += x[:, :, v, u] @ dense[:, :, ky, kx].T
    return out


PLAIN = ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))
CASES = [
    # images, channels, size, outputs, window, geometry, tile
    (2, 6, (5, 7), 9, (3, 3), PLAIN, Tile(2, 1, 2, 2, 1, 5, 7, 1, 4)),
    (5, 4, (4, 4), 10, (3, 3), PLAIN, Tile(1, 1, 3, 3, 4, 4, 4, 4, 4)),
    (1, 5, (9, 40), 5, (3, 3), PLAIN, Tile(4, 2, 1, 1, 1, 2, 20, 1, 2)),
    (3, 3, (8, 9), 4, (3, 3), ((2, 2), ((1, 1), (1, 1)), (1, 1), (1, 1)),
     Tile(4, 1, 1, 1, 1, 4, 5, 1, 3)),
    (3, 3, (8, 8), 7, (2, 4), ((3, 2), ((0, 1), (2, 1)), (2, 3), (1, 1)),
     Tile(2, 1, 2, 1, 2, 2, 2, 3, 8)),
    (2, 3, (4, 5), 6, (3, 3), ((1, 1), ((1, 2), (2, 1)), (1, 1), (2, 2)),
     Tile(2, 1, 4, 2, 1, 8, 10, 1, 2)),
    (4, 8, (1, 16), 12, (1, 1), ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
     Tile(4, 1, 2, 1, 1, 1, 16, 4, 3)),
    (1, 4, (6, 6), 5, (3, 3), ((1, 1), ((-1, 0), (1, -1)), (1, 1), (1, 1)),
     Tile(1, 1, 1, 5, 1, 3, 4, 1, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("neighbours", [False, True])
def test_read_back_it_is_the_convolution(rng, case, neighbours):
    images, channels, size, n, window, facts, tile = case
    strides, padding, dilation, spread = facts
    geometry = Geometry(strides, padding, dilation, spread, 1)
    out_hw = geometry.out_size(size, window)
    dense = np.where(rng.random((n, channels, *window)) < 0.4, 1.0, 0.0)
    dense *= rng.standard_normal(dense.shape)
    dense[1] = 0
    x = rng.standard_normal((images, channels, *size))
    layout = Layout.of(tile, channels, size, out_hw, window, geometry)
    output, channel, ky, kx = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(output, minlength=n))])
    pack = pack_windows(indptr, (channel, ky, kx), layout, neighbours)
    got = run(x, pack, dense[dense != 0], layout, geometry, n, out_hw)
    np.testing.assert_allclose(got, direct(x, dense, geometry, out_hw), rtol=1e-9, atol=1e-9)


def test_zeros_are_shared_where_the_padding_has_them():
    geometry = Geometry(*PLAIN, 1)
    layout = Layout.of(Tile(1, 4, 1, 1, 1, 7, 7, 2, 4), 8, (7, 7), (7, 7), (3, 3), geometry)
    assert (layout.pitch, layout.image_rows) == (8, 8)
    assert layout.plane == 2 * 64 + 8 + 1
    part = Layout.of(Tile(1, 4, 1, 1, 1, 3, 5, 1, 4), 8, (7, 7), (7, 7), (3, 3), geometry)
    assert (part.pitch, part.image_rows) == (7, 5)


@pytest.mark.parametrize("neighbours", [False, True])
def test_every_output_has_one_slot_and_warps_have_equal_work(rng, neighbours):
    sizes = rng.integers(0, 100, 200)
    geometry = Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1)
    tile = Tile(4, 4, 1, 4, 2, 1, LANES, 1, 8)
    layout = Layout.of(tile, 8, (1, 32), (1, 32), (1, 1), geometry)
    slots = deal_groups(sizes, layout, neighbours)
    assert sorted(slots[slots >= 0]) == list(range(200))
    work = np.where(slots >= 0, sizes[slots], 0).sum((2, 3))
    assert work.max() <= 1.5 * work.mean()
    if neighbours:
        assert (np.diff(slots[..., :4], axis=-1)[slots[..., 0] >= 0] == 1).all()


def test_what_no_launch_can_run_is_refused():
    geometry = Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1)
    shape = (8, (1, 64), (1, 64), (1, 1), geometry)
    for tile, words in [
        (Tile(1, 1, 1, 1, 1, 1, 64, 1, 8), "64 places"),
        (Tile(1, 4, 1, 17, 2, 1, 64, 1, 4), "rounds"),
        (Tile(4, 4, 1, 17, 1, 1, 64, 1, 4), "17 warps"),
    ]:
        with pytest.raises(ValueError, match=words):
            Layout.of(tile, *shape).check()
    with pytest.raises(ValueError, match="shared memory"):
        Layout.of(Tile(1, 4, 1, 1, 1, 1, 64, 1, 1100), 1100, *shape[1:]).check()


def call(channels, size, batch, density, precision="highest", first=False, dtype="float32"):
    """A 3x3 convolution whose outputs keep random columns."""
    keep = np.random.default_rng(0).random((channels, 9 * channels)) < density
    indptr = np.concatenate([[0], np.cumsum(keep.sum(1))])
    pattern = Pattern(9 * channels, channels, indptr, np.nonzero(keep)[1], (3, 3))
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    shape = (batch, size, size, channels)
    return Problem(pattern, "cuda", shape, dtype, dtype, precision, geometry, first)


@pytest.mark.skipif(not built(), reason="this build has no CUDA kernels")
def test_it_comes_first_where_it_won():
    for first in (False, True):
        assert ranked(call(256, 14, 1, 0.1, first=first))[0] == "windows"
        assert ranked(call(256, 14, 32, 0.1, first=first))[0] == "windows"
        assert ranked(call(256, 14, 32, 0.3, first=first))[0] == "dense"
        assert ranked(call(256, 14, 1, 0.1, precision="default", first=first))[0] == "dense"
        assert ranked(call(256, 14, 1, 0.1, dtype="bfloat16", first=first))[0] == "dense"
    assert against(call(16, 8, 1, 0.1, first=True))["rows"] == "it reads images as NHWC"


@pytest.mark.parametrize("first", [False, True])
def test_every_tile_tried_can_run(first):
    for problem in (call(64, 56, 1, 0.1, first=first), call(48, 7, 32, 0.2, first=first)):
        found = best(problem)
        assert len(found) > 100
        assert [cost for cost, _ in found] == sorted(cost for cost, _ in found)
        for _, layout in found:
            layout.check()


def test_an_image_of_any_size_has_a_tile():
    for size in ((1, 1), (1, 5000), (3, 1), (300, 2), (40, 1100)):
        problem = dataclasses.replace(call(5, 8, 1, 0.5), x_shape=(1, *size, 5))
        assert best(problem)


def test_the_kernels_are_those_that_are_built():
    file = Path(__file__).parents[3] / "cuda" / "variants" / "pruned_windows.toml"
    rows = tomllib.loads(file.read_text())["variant"]
    assert tuple((row["outputs"], row["positions"]) for row in rows) == VARIANTS


@pytest.mark.skipif(not built(), reason="this build has no CUDA kernels")
def test_nothing_to_multiply_is_refused():
    (windows,) = CONV_EXECUTORS
    whole = call(5, 8, 1, 0.5)
    for change in ({"x_shape": (0, 8, 8, 5)}, {"x_shape": (1, 0, 8, 5)}):
        why = windows.reason_against(dataclasses.replace(whole, **change))
        assert why == "there is nothing to multiply"
    nothing = Pattern(0, 8, np.zeros(9, np.int64), np.zeros(0, np.int64))
    product = Problem(nothing, "cuda", (4, 0), "float32", "float32", "highest")
    assert windows.reason_against(product) == "there is nothing to multiply"


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        ((3, 4, 1, 1, 1, 1, 64, 1, 4), "no kernel"),
        ((1, 4, 1, 1, 1, 1, 64, 1), "nine sizes"),
        ((1, 4, 1, 1, 1, 1, 64, 0, 4), "nine sizes"),
        ((1, 4, 1, 1, 1, 8, 8, 2, 4), "too many elements"),
    ],
)
def test_tiles_of_a_file_are_checked(tile, words):
    (windows,) = CONV_EXECUTORS
    problem = dataclasses.replace(call(5, 8, 1, 0.5), x_shape=(2, 20000, 20000, 5))
    with pytest.raises(ValueError, match=words):
        windows.pack(problem, tile)
