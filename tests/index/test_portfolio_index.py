"""Several tile sizes at once, and the choice among variants, on every implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsparse.index import portfolio_index

PORTFOLIO = ((1, 1), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
COSTS = np.array([[900.0, 0.0, -1.0], [10.0, 1.0, 0.0], [5.0, 40.0, 6.0]], np.float32)


def oracle(mask, tile):
    """The ids of the active tiles, ascending."""
    _, height, width = mask.shape
    th, tw = tile
    b, y, x = np.nonzero(mask)
    return np.unique((b * -(-height // th) + y // th) * -(-width // tw) + x // tw)


def cheapest(costs, counts, capacities):
    found = []
    for a, b, t, *waves in costs:
        listed = float(t).is_integer() and 0 <= t < len(counts)
        cost = a + b * counts[int(t)] if listed else a
        if listed and waves and waves[1] >= 1:
            cost += waves[0] * -(-counts[int(t)] // int(waves[1]))
        over = listed and counts[int(t)] > capacities[int(t)]
        found.append(np.inf if over or np.isnan(cost) else cost)
    return int(np.argmin(found)) if found else 0


def check(mask, tiles, costs, implementation, capacities=None):
    out = portfolio_index(mask, tiles, costs, capacities=capacities, implementation=implementation)
    wants = [oracle(mask, tile) for tile in tiles]
    for index, tile, want in zip(out.indices, tiles, wants, strict=True):
        ids = np.asarray(index.ids)
        listed = min(len(want), index.capacity)
        assert index.tile == tile
        assert int(index.count) == len(want)
        assert bool(index.overflow) == (len(want) > index.capacity)
        assert (ids[listed:] == -1).all()
        assert len(np.unique(ids[:listed])) == listed
        assert np.isin(ids[:listed], want).all()
        np.testing.assert_array_equal(index.to_mask(), mask)
    counts = [len(want) for want in wants]
    np.testing.assert_array_equal(out.counts, counts)
    assert out.counts.dtype == out.choice.dtype == np.int32
    assert int(out.choice) == cheapest(costs, counts, [i.capacity for i in out.indices])
    return out


@pytest.mark.parametrize("fill", [0.0, 0.002, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1, 64, 64), (2, 50, 71), (3, 17, 160)], ids=str)
def test_the_portfolio(implementation, shape, fill):
    mask = np.random.default_rng(0).random(shape) < fill
    check(mask, PORTFOLIO, COSTS, implementation)


@settings(max_examples=15)
@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 130)),
    tiles=st.lists(st.tuples(*[st.sampled_from([1, 2, 4, 8, 16, 32])] * 2), min_size=1, max_size=8),
    fill=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    room=st.one_of(st.none(), st.integers(0, 60)),
    seed=st.integers(0, 9),
)
def test_any_shape(implementation, shape, tiles, fill, room, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < fill
    variants = int(rng.integers(0, 40))
    costs = np.stack(
        [
            rng.integers(0, 3000, variants),
            rng.integers(0, 40, variants) * 0.25,
            rng.integers(-1, len(tiles) + 1, variants),
            rng.integers(0, 300, variants),
            rng.integers(0, 50, variants),
        ],
        1,
    ).astype(np.float32)
    capacities = None if room is None else [room] * len(tiles)
    check(mask, tuple(tiles), costs, implementation, capacities)


def test_many_blocks(implementation):
    mask = np.random.default_rng(3).random((2, 500, 701)) < 0.02
    check(mask, PORTFOLIO, COSTS, implementation)


def test_a_variant_whose_list_overflows_never_wins(implementation):
    mask = np.ones((1, 32, 32), bool)
    costs = np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, -1.0], [7.0, 1.0, 1.0]], np.float32)
    out = check(mask, ((1, 1), (8, 8)), costs, implementation, capacities=[100, None])
    assert int(out.choice) == 2


@pytest.mark.parametrize("per_wave", [2.0**31, 2.0**32, 1e30, np.inf])
def test_a_wave_longer_than_any_list_is_one(implementation, per_wave):
    mask = np.ones((1, 8, 8), bool)
    costs = np.array([[0.0, 0.0, 0.0, 5.0, per_wave], [4.0, 0.0, -1.0, 0.0, 0.0]], np.float32)
    out = portfolio_index(mask, ((1, 1),), costs, implementation=implementation)
    assert int(out.choice) == 1


# Not in the op suite: portfolio_index is not an op of the API.
def test_vmap_folds_masks_and_costs(implementation):
    masks = np.random.default_rng(1).random((2, 3, 2, 20, 37)) < 0.1
    costs = jnp.asarray(COSTS)

    def build(mask, costs):
        return portfolio_index(mask, PORTFOLIO[:3], costs, implementation=implementation)

    inner = jax.vmap(build, in_axes=(0, None))
    scaled = jnp.stack([costs, costs * jnp.array([0.01, 1.0, 1.0])])
    out = jax.jit(jax.vmap(inner))(masks, scaled)
    assert out.counts.shape == (2, 3, 3)
    for i in np.ndindex(2, 3):
        one = build(masks[i], scaled[i[0]])
        np.testing.assert_array_equal(out.choice[i], one.choice)
        np.testing.assert_array_equal(out.counts[i], one.counts)
        for a, b in zip(out.indices, one.indices, strict=True):
            np.testing.assert_array_equal(np.sort(a.ids[i]), np.sort(b.ids))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tiles": ()}, "tiles has 0 sizes"),
        ({"tiles": ((1, 1),) * 9}, "tiles has 9 sizes"),
        ({"tiles": ((3, 4),)}, r"tiles holds \(3, 4\)"),
        ({"tiles": ((64, 4),)}, r"tiles holds \(64, 4\)"),
        ({"costs": COSTS[:, :2]}, "costs must be float32"),
        ({"costs": COSTS.astype(np.float64)}, "costs must be float32"),
        ({"capacities": [1, 2]}, "capacities has 2 entries; tiles has 1"),
        ({"mask": np.ones((4, 4), bool)}, "mask has shape"),
    ],
)
def test_bad_input(change, match):
    arguments = {"mask": np.ones((1, 4, 4), bool), "tiles": ((4, 4),), "costs": COSTS}
    with pytest.raises(ValueError, match=match):
        portfolio_index(**(arguments | change))
