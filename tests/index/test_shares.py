"""Masks of many shapes and sizes: however a kernel shares them among its blocks, the lists are the
same.
"""

import jax
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.index import portfolio_index

COSTS = np.array([[500.0, 0.0, -1.0], [3.0, 1.0, 0.0]], np.float32)
SHAPES = [
    (1, 7, 33),  # less than a block has threads
    (5, 40, 40),  # rows of no whole 16 bytes
    (3, 65, 48),  # half a word at the end of a row, a strip of one row
    (1, 1, 70001),  # one row, cut into columns
    (1, 3, 65536),
    (1, 5000, 9),  # one word a row
    (300, 3, 17),  # images lower than the highest tile
    (1, 640, 640),
    (2, 511, 1024),
]
TILE_SETS = [((1, 1),), ((4, 4),), ((32, 32), (1, 1)), ((16, 16), (2, 4), (1, 32), (32, 1))]


def oracle(mask, tile):
    """The ids of the active tiles, ascending."""
    _, height, width = mask.shape
    th, tw = tile
    b, y, x = np.nonzero(mask)
    return np.unique((b * -(-height // th) + y // th) * -(-width // tw) + x // tw)


def check(ids, count, overflow, want, *, ordered):
    ids = np.asarray(ids)
    listed = min(len(want), len(ids))
    got = ids[:listed] if ordered else np.sort(ids[:listed])
    assert int(count) == len(want)
    assert bool(overflow) == (len(want) > len(ids))
    assert (ids[listed:] == -1).all()
    if len(want) <= len(ids) or ordered:
        np.testing.assert_array_equal(got, want[:listed])
    else:
        assert np.isin(got, want).all()
        assert len(np.unique(got)) == listed


@pytest.mark.parametrize("fill", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lists(implementation, shape, fill):
    mask = np.random.default_rng(7).random(shape) < fill
    for tiles in TILE_SETS:
        out = portfolio_index(mask, tiles, COSTS, implementation=implementation)
        for index, tile in zip(out.indices, tiles, strict=True):
            want = oracle(mask, tile)
            check(index.ids, index.count, index.overflow, want, ordered=False)
        np.testing.assert_array_equal(out.indices[0].to_mask(), mask)
        assert int(out.choice) == int(3.0 + float(out.counts[0]) < 500.0)


@pytest.mark.parametrize("room", [0, 101])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_ordered_list_of_some(implementation, shape, room):
    mask = np.random.default_rng(8).random(shape) < 0.4
    for tile in [(1, 1), (2, 8)]:
        index = js.tile_index(
            mask, tile, capacity=room, ordered=True, implementation=implementation
        )
        check(index.ids, index.count, index.overflow, oracle(mask, tile), ordered=True)


@pytest.mark.parametrize("shape", [(1, 24, 40), (2, 130, 96), (1, 600, 512)], ids=str)
def test_many_masks_at_once(implementation, shape):
    masks = np.random.default_rng(9).random((7, *shape)) < 0.2

    def build(mask):
        out = portfolio_index(mask, ((8, 8), (1, 1)), COSTS, implementation=implementation)
        return [(index.ids, index.count, index.overflow) for index in out.indices]

    lists = jax.jit(jax.vmap(build))(masks)
    for (ids, count, overflow), tile in zip(lists, ((8, 8), (1, 1)), strict=True):
        for k, mask in enumerate(masks):
            check(ids[k], count[k], overflow[k], oracle(mask, tile), ordered=False)


def test_calls_of_one_program_do_not_share_memory(implementation):
    """Calls that do not depend on each other may run at once; every run gives the same lists."""
    rng = np.random.default_rng(10)
    masks = [rng.random((1, 40 * k, 64 * k)) < 0.1 * k for k in range(1, 8)]

    @jax.jit
    def build(masks):
        return [js.tile_index(mask, (1, 1), implementation=implementation) for mask in masks]

    for _ in range(5):
        for index, mask in zip(build(masks), masks, strict=True):
            check(index.ids, index.count, index.overflow, oracle(mask, (1, 1)), ordered=False)
