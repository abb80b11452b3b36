"""Grid-aligned lists: the same set, and the same order when asked, from every implementation."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index.oracles import tiles_of as oracle

import jaxsparse as js

TILES = [(1, 1), (2, 4), (8, 16), (3, 5), (7, 33), (5, 64), (1, 32), (32, 1), (100, 100)]
SHAPES = [(1, 16, 32), (2, 19, 45), (1, 5, 320), (0, 8, 8), (2, 0, 9), (2, 9, 0)]


def check(index, mask, tile, *, ordered):
    want = oracle(mask, tile)
    ids = np.asarray(index.ids)
    listed = min(len(want), index.capacity)
    assert int(index.count) == len(want)
    assert bool(index.overflow) == (len(want) > index.capacity)
    assert (ids[listed:] == -1).all()
    if ordered:
        np.testing.assert_array_equal(ids[:listed], want[:listed])
    else:
        assert len(np.unique(ids[:listed])) == listed
        assert np.isin(ids[:listed], want).all()
    np.testing.assert_array_equal(index.to_mask(), mask)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_tile(implementation, tile):
    for k, shape in enumerate(SHAPES):
        ordered = k % 2 == 1
        mask = np.random.default_rng(k).random(shape) < 0.1
        index = js.tile_index(mask, tile, ordered=ordered, implementation=implementation)
        check(index, mask, tile, ordered=ordered)
        assert not index.may_overflow
        np.testing.assert_array_equal(index.cover(), mask)


@settings(max_examples=15)
@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 130)),
    tile=st.tuples(st.integers(1, 50), st.integers(1, 70)),
    fill=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    capacity=st.one_of(st.none(), st.integers(0, 60)),
    ordered=st.booleans(),
)
def test_any_shape(implementation, shape, tile, fill, capacity, ordered):
    mask = np.random.default_rng(0).random(shape) < fill
    index = js.tile_index(
        mask, tile, capacity=capacity, ordered=ordered, implementation=implementation
    )
    check(index, mask, tile, ordered=ordered)
    if mask.size:
        np.testing.assert_allclose(index.density(), mask.mean(), rtol=1e-6)
    cover = np.asarray(index.cover())
    tiles = np.asarray(index.tile_mask())
    b, y, x = np.nonzero(mask)
    np.testing.assert_array_equal(cover[b, y, x], tiles[b, y // tile[0], x // tile[1]])
    assert cover.sum() == cover[b, y, x].sum()


def test_many_blocks(implementation):
    """Enough items for several blocks of the kernels, and for several steps of a block."""
    mask = np.random.default_rng(3).random((2, 500, 700)) < 0.2
    for tile in [(1, 1), (3, 7)]:
        for ordered in (False, True):
            index = js.tile_index(mask, tile, ordered=ordered, implementation=implementation)
            check(index, mask, tile, ordered=ordered)


def test_overflow_lists_the_first_when_ordered(implementation):
    mask = np.ones((1, 64, 64), bool)
    index = js.tile_index(mask, (8, 8), capacity=10, ordered=True, implementation=implementation)
    assert index.may_overflow
    assert bool(index.overflow)
    assert int(index.count) == 64
    np.testing.assert_array_equal(index.ids, np.arange(10))
    assert int(np.asarray(index.cover()).sum()) == 640
    assert float(index.tile_density()) == 1.0


def test_set_bits_past_the_width_are_ignored(implementation):
    words = jnp.full((1, 4, 2), 0xFFFFFFFF, jnp.uint32)
    for tile in [(2, 4), (2, 5), (1, 1)]:
        index = js.TileIndex.from_words(
            words, 40, tile, ordered=True, implementation=implementation
        )
        check(index, np.ones((1, 4, 40), bool), tile, ordered=True)


def test_the_tuning_table_names_a_tile(implementation):
    index = js.tile_index(np.ones((1, 32, 32), bool), implementation=implementation)
    assert len(index.tile) == 2
    assert int(index.count) == index.n_tiles


def test_deterministic_lists_are_ordered(implementation):
    mask = np.random.default_rng(5).random((3, 200, 300)) < 0.3
    with js.config(deterministic=True):
        for made in (
            js.tile_index(jnp.asarray(mask), (3, 3), implementation=implementation),
            js.TileIndex.from_words(
                js.pack_mask(jnp.asarray(mask)), 300, (7, 7), implementation=implementation
            ),
        ):
            check(made, mask, made.tile, ordered=True)
