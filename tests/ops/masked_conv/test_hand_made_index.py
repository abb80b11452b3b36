"""Ids that a list made by hand, or gathered from the shards of a mesh, holds: negative ones between
the tiles, and numbers that name no tile. They are skipped, and nothing is read out of bounds.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxsparse as js
from jaxsparse.index.visited import slots_of
from jaxsparse.select.config import override

SHAPE, TILE = (2, 9, 37), (4, 4)
PLATFORM = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
X = jnp.asarray(np.random.default_rng(0).standard_normal((2, 9, 37, 8)), jnp.float32)
KERNEL = jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 8, 16)), jnp.float32)


def with_ids(index, ids, count):
    return dataclasses.replace(
        index, ids=jnp.asarray(ids, jnp.int32), count=jnp.asarray(count, jnp.int32)
    )


def variants():
    return [v.name for v in js.variants("masked_conv") if v.platform == PLATFORM]


def gathered(ids):
    """A list as a mesh of two shards leaves it: each shard's tiles, then -1."""
    tiles = ids[ids >= 0]
    first, last = tiles[: len(tiles) // 4], tiles[len(tiles) // 4 :]
    half = len(ids) // 2
    halves = [np.pad(part, (0, half - len(part)), constant_values=-1) for part in (first, last)]
    return np.concatenate([*halves, np.full(len(ids) - 2 * half, -1)])


@pytest.mark.skipif(
    PLATFORM != "cpu" and jax.device_count() == 1,
    reason="a process with one GPU takes its lists to be without holes",
)
@pytest.mark.parametrize("density", [0.05, 0.2])
def test_a_gathered_list_is_whole_on_the_cpu(rng, density):
    mask = jnp.asarray(rng.random(SHAPE) < density)
    index = js.tile_index(mask, (1, 1), ordered=True)
    spread = with_ids(index, gathered(np.asarray(index.ids)), index.count)
    assert (np.asarray(spread.ids)[: int(index.count)] < 0).any()

    def both(index):
        def loss(x, kernel):
            return (js.masked_conv(x, kernel, index, precision="highest") ** 2).sum()

        return js.masked_conv(X, KERNEL, index), jax.grad(loss, (0, 1))(X, KERNEL)

    for got, want in zip(*(jax.tree.leaves(both(i)) for i in (spread, index)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


HOSTILE = [-1, -7, -(2**31), 2**31 - 1, 60, 59]


@pytest.mark.parametrize("implementation", [None, "reference"])
def test_ids_that_name_no_tile(implementation, rng):
    """Every variant, on a list whose ids are partly nonsense; full images stay in bounds."""
    mask = jnp.ones(SHAPE, bool)
    index = js.tile_index(mask, TILE, ordered=True, capacity=20)  # of 60
    assert index.n_tiles == 60
    ids = np.asarray(index.ids).copy()
    ids[: 2 * len(HOSTILE) : 2] = HOSTILE
    spoiled = with_ids(index, ids, 2**31 - 1)
    against = js.explain(js.masked_conv, X, KERNEL, spoiled).calls[0].against
    names = [n for n in variants() if n not in against] if implementation is None else [None]
    assert names
    want = js.masked_conv(X, KERNEL, spoiled.cover(), precision="highest")
    for name in names:
        with js.config(selection="static"), override(variant=name):
            got = js.masked_conv(X, KERNEL, spoiled, implementation=implementation)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=5e-2)
    listed = {i for i in ids.tolist() if 0 <= i < 60}
    assert int(spoiled.tile_mask().sum()) == len(listed)


def test_origins_that_name_no_tile(rng):
    mask = jnp.asarray(rng.random(SHAPE) < 0.2)
    index = js.tile_index(mask, TILE, align="component")
    ids = np.asarray(index.ids).copy()
    ids[1], ids[2], ids[3] = (-1, -1, -1), (0, -5, 2**31 - 1), (7, 0, 0)
    spoiled = with_ids(index, ids, index.count)
    whole = np.asarray(js.masked_conv(X, KERNEL, mask))
    got = np.asarray(js.masked_conv(X, KERNEL, spoiled))
    assert ((got == 0) | (np.abs(got - whole) < (1e-3 if PLATFORM == "cpu" else 5e-2))).all()
    exact, right = (
        np.asarray(js.masked_conv(X, KERNEL, of, precision="highest")) for of in (spoiled, mask)
    )
    assert ((exact == 0) | (np.abs(exact - right) < 1e-3)).all()


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
def test_an_index_that_is_moved_to_one_device(rng):
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("b",))
    mask = rng.random(SHAPE) < 0.2
    sharded = jax.device_put(mask, NamedSharding(mesh, PartitionSpec("b")))
    index = jax.jit(lambda m: js.tile_index(m, (1, 1)))(sharded)
    moved = jax.device_put(index, jax.devices()[0])
    assert (np.asarray(moved.ids)[: int(moved.count)] < 0).any()
    whole = js.tile_index(moved.to_mask(), (1, 1))
    slots = int(slots_of(moved, "cuda"))
    assert (np.asarray(moved.ids)[slots:] < 0).all(), "the CUDA kernels visit all of the tiles"
    assert slots > int(moved.count) == int(slots_of(whole, "cuda"))
    with js.checked():
        with pytest.raises(ValueError, match=r"^masked_conv: the index was built of a mask that"):
            js.masked_conv(X, KERNEL, moved)
        got = js.masked_conv(X, KERNEL, whole)
    np.testing.assert_allclose(got, js.masked_conv(X, KERNEL, mask), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(js.masked_conv(X, KERNEL, moved), got, rtol=1e-4, atol=1e-4)


def test_a_hand_made_count_is_kept(rng):
    """A count below the number of listed tiles, and an overflow: no list of several shards."""
    index = js.tile_index(rng.random(SHAPE) < 0.5, (1, 1))
    fewer = with_ids(index, np.asarray(index.ids), np.int32(3))
    assert int(slots_of(fewer, "cuda")) == 3
    full = js.tile_index(np.ones(SHAPE, bool), (1, 1), capacity=5)
    assert int(slots_of(full, "cuda")) == int(full.count) > 5
