"""Tiles per connected component: labels, origins, order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index.oracles import component_tiles_of as oracle

import jaxsparse as js
from jaxsparse.mask import blobs


def check(mask, tile, implementation, *, ordered=True, capacity=None):
    index = js.tile_index(
        mask,
        tile,
        align="component",
        ordered=ordered,
        capacity=capacity,
        implementation=implementation,
    )
    want = oracle(mask, tile)
    listed = min(len(want), index.capacity)
    ids = np.asarray(index.ids)
    assert int(index.count) == len(want)
    assert bool(index.overflow) == (len(want) > index.capacity)
    assert (ids[listed:] == -1).all()
    if ordered:
        np.testing.assert_array_equal(ids[:listed], want[:listed])
    elif capacity is None:
        np.testing.assert_array_equal(np.unique(ids[:listed], axis=0), np.unique(want, axis=0))
    return index


def snake(height, width):
    """One component whose pixels are far from one another along it."""
    mask = np.zeros((1, height, width), bool)
    mask[:, ::2] = True
    mask[:, 1::4, -1] = True
    mask[:, 3::4, 0] = True
    return mask


MASKS = {
    "blobs": blobs((2, 50, 70), 0.3, scale=3.0),
    "full": np.ones((2, 20, 33), bool),
    "empty": np.zeros((1, 20, 33), bool),
    "snake": snake(23, 40),
    "diagonal": np.eye(40, 70, dtype=bool)[None],
    "isolated": np.indices((30, 66)).prod(0)[None] % 4 == 1,
    "zero": np.zeros((2, 0, 5), bool),
}


@pytest.mark.parametrize("tile", [(1, 1), (3, 5), (8, 64)], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_kinds_of_masks(implementation, name, tile):
    index = check(MASKS[name], tile, implementation)
    np.testing.assert_array_equal(index.cover(), MASKS[name])


@settings(max_examples=12)
@given(
    shape=st.tuples(st.integers(0, 2), st.integers(0, 24), st.integers(0, 80)),
    tile=st.tuples(st.integers(1, 12), st.integers(1, 40)),
    fill=st.sampled_from([0.02, 0.2, 0.4, 0.6]),
    capacity=st.one_of(st.none(), st.integers(0, 30)),
    ordered=st.booleans(),
    seed=st.integers(0, 9),
)
def test_any_shape(implementation, shape, tile, fill, capacity, ordered, seed):
    mask = np.random.default_rng(seed).random(shape) < fill
    check(mask, tile, implementation, ordered=ordered, capacity=capacity)


def test_a_rectangle_off_the_grid_takes_fewer_tiles(implementation):
    mask = np.zeros((1, 64, 64), bool)
    mask[0, 5:21, 3:35] = True
    aligned = js.tile_index(mask, (8, 8), implementation=implementation)
    index = check(mask, (8, 8), implementation)
    assert int(index.count) == 8
    assert int(aligned.count) == 15


def test_cover_with_overflow(implementation):
    mask = np.ones((1, 16, 40), bool)
    index = check(mask, (8, 8), implementation, capacity=6)
    want = np.zeros((1, 16, 40), bool)
    want[:, :8] = True
    want[:, 8:, :8] = True
    np.testing.assert_array_equal(index.cover(), want)


def test_no_common_grid(implementation):
    index = js.tile_index(
        np.ones((1, 8, 8), bool), (4, 4), align="component", implementation=implementation
    )
    with pytest.raises(ValueError, match="tile_mask"):
        index.tile_mask()
