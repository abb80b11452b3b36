"""Generators: exact densities, the same mask for the same seed."""

import numpy as np
import pytest

from jaxsparse.mask import blobs, edges, random_pixels, rectangles


@pytest.mark.parametrize("density", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("make", [blobs, random_pixels])
def test_exact_density(make, density):
    mask = make((3, 40, 50), density, seed=4)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask.sum((1, 2)), round(density * 2000))
    np.testing.assert_array_equal(mask, make((3, 40, 50), density, seed=4))
    if 0 < density < 1:
        assert (mask != make((3, 40, 50), density, seed=5)).any()


def test_scale_makes_blobs_coarser():
    def borders(mask):
        return (mask[:, 1:] != mask[:, :-1]).sum()

    shape = (1, 96, 96)
    assert borders(blobs(shape, 0.3, scale=8.0)) < borders(blobs(shape, 0.3, scale=1.0)) / 3


def test_rectangles():
    mask = rectangles((4, 60, 80), 0.25, count=2, seed=1)
    np.testing.assert_array_equal(mask.sum((1, 2)), 2 * 30 * 20)
    assert rectangles((1, 10, 10), 1.0).all()
    assert not rectangles((1, 10, 10), 0.0).any()


def test_edges_are_where_the_image_changes():
    image = np.zeros((40, 60, 3), np.uint8)
    image[:, 30:] = 200
    mask = edges(image, 0.1)
    assert mask.shape == (1, 40, 60)
    assert mask.sum() == 240
    assert mask[0, :, 29:31].all()
    with pytest.raises(ValueError, match="image has shape"):
        edges(np.zeros(5), 0.1)


@pytest.mark.parametrize("make", [blobs, random_pixels, rectangles])
def test_zero_sizes_and_bad_density(make):
    assert make((0, 4, 4), 0.5).shape == (0, 4, 4)
    with pytest.raises(ValueError, match="density=2"):
        make((1, 4, 4), 2)
