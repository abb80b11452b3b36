"""Cases and masks by name."""

import math

import numpy as np
import pytest

from jaxsparse.testing import (
    CASES,
    MASKS,
    case,
    cases,
    make_masks,
    masks_of_tile_density,
    photograph,
    tile_density,
)
from jaxsparse.testing.masks import _scene


def test_the_shapes_that_goals_are_stated_for():
    cpu = {(c.batch, c.height, c.channels) for c in cases("cpu")}
    assert cpu == {
        (b, *shape) for b in (1, 4) for shape in ((64, 64), (128, 32), (56, 128), (28, 256))
    }
    gpu = {(c.batch, c.height, c.channels) for c in cases("gpu")}
    assert {(64, 40, 256), (16, 40, 256), (1, 40, 256), (8, 128, 256), (1, 1024, 64)} <= gpu
    assert {c.kernel for c in cases("gpu")} == {(1, 1), (3, 3)}
    assert {c.strides for c in cases("gpu")} == {(1, 1), (2, 2)}


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_well_formed(name):
    one = CASES[name]
    assert one.name == name
    assert one.channels % one.groups == one.outputs % one.groups == 0
    assert min(one.mask_shape) >= 0
    assert one.macs == math.prod(one.mask_shape) * math.prod(one.kernel_shape)
    assert one.options.keys() == {"strides", "padding", "dilation", "groups"}


def test_arrays():
    one = case("odd_depthwise_multiplier")
    arrays = one.arrays()
    assert arrays["x"].shape == one.x_shape
    assert arrays["kernel"].shape == (3, 3, 1, 24)
    assert arrays["base"].shape == (*one.mask_shape, 24)
    assert {a.dtype for a in arrays.values()} == {np.dtype(np.float32)}
    assert (arrays["x"] == one.arrays()["x"]).all()
    assert (arrays["x"] != one.arrays(seed=1)["x"]).any()


def test_unknown_names():
    with pytest.raises(ValueError, match="case='nothing'"):
        case("nothing")
    with pytest.raises(ValueError, match="tag='nothing'"):
        cases("nothing")
    with pytest.raises(ValueError, match="mask='nothing'"):
        make_masks("nothing", (1, 4, 4), 0.5)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("shape", [(2, 24, 40), (1, 7, 5)])
def test_masks(name, shape):
    first, second = make_masks(name, shape, 0.3, count=2)
    assert first.shape == shape
    assert first.dtype == np.bool_
    assert (first != second).any()
    assert (first == make_masks(name, shape, 0.3)[0]).all()
    assert first.mean() == pytest.approx(0.3, abs=0.1 if name == "rectangles" else 0.03)
    assert make_masks(name, shape, 1.0)[0].all()
    assert not make_masks(name, shape, 0.0)[0].any()


def test_tile_density():
    mask = np.zeros((1, 5, 6), bool)
    mask[0, 4, 5] = True
    assert tile_density(mask, (1, 1)) == pytest.approx(1 / 30)
    assert tile_density(mask, (2, 4)) == pytest.approx(1 / 6)
    assert tile_density(mask, (8, 8)) == 1.0
    assert tile_density(np.zeros((0, 5, 6), bool), (2, 2)) == 0.0


@pytest.mark.parametrize("density", [0.1, 0.3, 0.7])
def test_masks_of_a_tile_density(density):
    masks = masks_of_tile_density("blobs", (2, 64, 64), density, (4, 4), count=2)
    assert len(masks) == 2
    assert tile_density(masks[0], (4, 4)) == pytest.approx(density, abs=0.02)


def test_photographs():
    for image in (photograph(), _scene()):
        assert image.ndim == 2
        assert image.min() >= 0
        assert image.max() <= 1
        assert image.std() > 0.1
