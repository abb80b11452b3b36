"""The greedy portfolio against brute force, and ladders against every possible split."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxsparse.select.portfolio import greedy, ladder, set_cost, widened

costs = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 5)),
    elements=st.floats(0.5, 100, allow_nan=False),
)


@given(costs, st.integers(1, 5))
def test_greedy_is_within_its_bound(cost, size):
    chosen = greedy(cost, size)
    assert 1 <= len(set(chosen)) == len(chosen) <= size
    sets = itertools.combinations(range(cost.shape[1]), min(size, cost.shape[1]))
    best = min(set_cost(cost, s) for s in sets)
    worst = cost.max(1).mean()
    saved, most = worst - set_cost(cost, chosen), worst - best
    assert saved >= (1 - 1 / np.e) * most - 1e-9


@given(costs, st.integers(1, 5))
def test_each_choice_lowers_the_cost(cost, size):
    chosen = greedy(cost, size)
    totals = [set_cost(cost, chosen[:n]) for n in range(1, len(chosen) + 1)]
    assert totals[0] == pytest.approx(cost.mean(0).min())
    assert all(b < a for a, b in itertools.pairwise(totals))


@given(costs)
def test_set_cost_is_supermodular(cost):
    columns = range(cost.shape[1])
    for small in itertools.combinations(columns, 1):
        for large in itertools.combinations(columns, 2):
            for s in set(columns) - set(large):
                if set(small) < set(large):
                    gain_small = set_cost(cost, small) - set_cost(cost, (*small, s))
                    gain_large = set_cost(cost, large) - set_cost(cost, (*large, s))
                    assert gain_small >= gain_large - 1e-9


def test_coverage_comes_before_speed():
    cost = np.array([[1.0, 9.0], [np.inf, 9.0]])
    assert greedy(cost, 2) == [1, 0]
    assert greedy(cost, 1) == [1]


def test_useless_variants_stay_out():
    cost = np.array([[1.0, 2.0, 3.0], [4.0, 3.99, 5.0]])
    assert greedy(cost, 3) == [0, 1]
    assert greedy(cost, 3, least_gain=0.05) == [0]


@pytest.mark.parametrize(
    ("cost", "size", "message"),
    [
        ([[1.0]], 0, "size=0"),
        ([1.0, 2.0], 1, "needs"),
        (np.zeros((0, 2)), 1, "needs"),
        ([[np.nan]], 1, "NaN"),
        ([[-1.0]], 1, "negative"),
        ([[np.inf, np.inf], [1.0, 2.0]], 1, "no variant serves"),
    ],
)
def test_bad_tables(cost, size, message):
    with pytest.raises(ValueError, match=message):
        greedy(cost, size)


def test_nothing_chosen_costs_infinitely_much():
    assert set_cost([[1.0]], []) == float("inf")


def test_ladder_of_crossing_lines():
    density = np.array([0.1, 0.3, 0.5, 1.0])
    cost = np.stack([10 * density, np.full(4, 4.0)], 1)
    assert ladder(density, cost, greedy(cost, 2)) == [(0.4, 0), (1.0, 1)]


def test_equal_densities_share_a_rung():
    rungs = ladder([0.2, 0.2, 0.9], [[1.0, 5.0], [4.0, 1.0], [9.0, 2.0]], [0, 1])
    assert [column for _, column in rungs] == [0, 1]
    assert rungs[0][0] == pytest.approx(0.55)
    with pytest.raises(ValueError, match="density has shape"):
        ladder([0.2], [[1.0], [2.0]], [0])


@given(costs, st.data())
def test_ladder_is_the_best_split(cost, data):
    masks = len(cost)
    density = data.draw(
        st.lists(st.floats(0, 1), min_size=masks, max_size=masks, unique=True), label="density"
    )
    chosen = greedy(cost, 3)
    rungs = ladder(density, cost, chosen)
    assert len(rungs) <= len(chosen)
    assert rungs[-1][0] == 1.0
    assert [r[0] for r in rungs] == sorted(r[0] for r in rungs)
    assert all(a[1] != b[1] for a, b in itertools.pairwise(rungs))
    order = np.argsort(density)
    got = sum(cost[m, next(c for up_to, c in rungs if density[m] <= up_to)] for m in range(masks))
    cuts = itertools.chain.from_iterable(
        itertools.combinations(range(1, masks), n) for n in range(len(chosen))
    )
    best = min(
        sum(
            cost[order[a:b]][:, chosen].sum(0).min()
            for a, b in itertools.pairwise((0, *cut, masks))
        )
        for cut in cuts
    )
    assert got == pytest.approx(best)


@given(costs)
def test_a_rung_for_each_is_the_best_such_split(cost):
    masks, variants = cost.shape
    cost = np.where(np.isfinite(cost), cost, 1e6)
    density = np.linspace(0, 1, masks)
    runs = min(masks, variants)
    rungs = ladder(density, cost, range(variants), each=True)
    assert len({column for _, column in rungs}) == len(rungs) == runs
    got = sum(cost[m, next(c for up_to, c in rungs if density[m] <= up_to)] for m in range(masks))
    best = min(
        sum(
            cost[a:b, column].sum()
            for (a, b), column in zip(itertools.pairwise(edges), columns, strict=True)
        )
        for cut in itertools.combinations(range(1, masks), runs - 1)
        for edges in [(0, *cut, masks)]
        for columns in itertools.permutations(range(variants), runs)
    )
    assert got == pytest.approx(best)


def test_widened_adds_the_cheapest_that_serve_every_mask():
    cost = [[1.0, 9.0, np.inf, 3.0], [1.0, 9.0, 0.0, 4.0]]
    assert widened(cost, [0], 2, []) == [0, 3]
    assert widened(cost, [0], 2, [1]) == [0, 1]
    assert widened(cost, [0], 4, [2]) == [0, 3, 1]
