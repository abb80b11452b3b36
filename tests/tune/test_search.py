"""The search: rates that give back what was measured, held-out masks, budgets, resuming; and the
greedy choice against the best set.
"""

import importlib
import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.device import home_platform
from jaxsparse.index import tile_index
from jaxsparse.select.choice import Choice, Reason
from jaxsparse.select.config import settings
from jaxsparse.select.masked_conv.cost import Work, candidate
from jaxsparse.select.portfolio import greedy, set_cost
from jaxsparse.select.problem import Problem
from jaxsparse.select.sites import Site
from jaxsparse.select.table import Entry, Rung, shipped, table_for
from jaxsparse.select.variants import table
from jaxsparse.testing import case
from jaxsparse.tune import held_out, tune, tuner
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.site_rates import rates_of

sys.path.insert(0, str(Path(__file__).parents[1] / "select"))
from choice_answers import every_table

H200 = shipped()["NVIDIA H200"]
CASE = case("b1_16x16x16_quick")
FEATURES = {"pixels": 16384, "taps": 9, "channels": 128, "outputs": 128, "groups": 1, "stride": 1}
PROBLEM = Problem("masked_conv", "cuda", "bfloat16", FEATURES, 16384)


@pytest.mark.parametrize("seed", range(5))
def test_six_of_many_are_near_the_best_six(seed):
    """DynaSpa 3.2: what the greedy choice gains is at least 1 - 1/e of what the best set does."""
    rng = np.random.default_rng(seed)
    cost = rng.lognormal(size=(30, 9)) * rng.uniform(1, 3, 9)
    chosen = greedy(cost, 6)
    first = set_cost(cost, [int(cost.max(0).argmin())])
    best = min(set_cost(cost, each) for each in itertools.combinations(range(9), 6))
    worst = float(cost.max(1).mean())
    assert worst - set_cost(cost, chosen) >= (1 - np.exp(-1)) * (worst - best)
    curve = [set_cost(cost, greedy(cost, k)) for k in (1, 2, 4, 6, 8)]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] <= first


def test_rates_give_back_what_was_measured():
    """The times of the shipped rates, on masks of seven densities, at another shape's name."""
    densities = (0.02, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
    work = Work(9, 128, 128, 2, 16384, 1)
    names = ("m128n128", "m128n64", "m256n128")
    with every_table():
        rows = table("masked_conv", "cuda")
        known = H200.rates_of("masked_conv", "bfloat16", work.shape)
        rungs = {n: candidate(rows[n], known[n], work, 1, 132) for n in names}
        us = [[1.1 * rungs[n].at(round(d * 16384)) for n in names] for d in densities]
        seconds = tuple((*(1e-6 * v for v in row), 30e-6) for row in us)
        costs = Costs((*names, "dense"), densities, seconds)
        index = jax.eval_shape(lambda m: tile_index(m, (1, 1)), np.ones((1, 128, 128), bool))
        made = {r.variant: r for r in rates_of(PROBLEM, index, costs, H200)}
        for name, column in zip(names, np.asarray(us).T, strict=True):
            again = candidate(rows[name], made[name], work, 1, 132)
            got = [again.at(round(d * 16384)) for d in densities]
            np.testing.assert_allclose(got, column, rtol=0.12)
    assert made["dense"].step * work.macs / 1e9 == pytest.approx(30.0, rel=1e-3)
    # What was not measured keeps its rates, a tenth slower as the others are, at this shape.
    assert made["box128"].shape == work.shape
    assert 1.0 < made["box128"].step / known["box128"].step < 1.2
    other = Problem("masked_conv", "cuda", "bfloat16", FEATURES | {"groups": 2}, 16384)
    assert rates_of(other, index, costs, H200) == ()


def test_every_fourth_mask_is_held_out():
    assert held_out.split(3) == ([0, 1, 2], [0, 1, 2])
    assert held_out.split(7) == ([0, 1, 2, 4, 5, 6], [3])
    assert held_out.split(8)[1] == [3, 7]


def site(variant):
    choice = Choice("static", (Rung(1.0, variant),), Reason.TABLE)
    return Site(PROBLEM, {}, (), choice)


def test_a_slower_choice_is_found():
    costs = Costs(("a", "b"), (0.1, 0.9), ((1.0, 2.0), (3.0, 2.5)))
    assert held_out.seconds(site("a"), costs) == 2.0
    assert held_out.seconds(site("c"), costs) == float("inf")
    entries = [Entry("masked_conv", "bfloat16", FEATURES, v, (Rung(1.0, v),)) for v in "ab"]
    one, two = (js.TuningTable(device="x", measured="", entries=(e,)) for e in entries)

    def look():
        return [site(settings().tuning.entries[0].static)]

    assert held_out.losers(look, lambda s: "it", one, two, {"it": costs}) == {
        held_out.entry_key("masked_conv", "bfloat16", FEATURES)
    }
    assert held_out.losers(look, lambda s: "it", two, one, {"it": costs}) == set()


@pytest.fixture
def call():
    arrays = CASE.arrays()
    mask = jnp.asarray(np.random.default_rng(0).random(CASE.mask_shape) < 0.3)
    return (lambda x, k: js.masked_conv(x, k, mask)), *(
        jnp.asarray(arrays[n]) for n in ("x", "kernel")
    )


def test_a_budget_resumes_and_ends_where_one_run_does(call, tmp_path, monkeypatch):
    """Times are made up, so that two runs measure the same."""
    module = importlib.import_module("jaxsparse.tune.tuner")
    began = []

    def made_up(site, masks, *, on_row, **_):
        names, rows, densities = tuple(site.branches), [], []
        for row in masks:
            began.append(row.name)
            density = row.make().density
            densities.append(density)
            rows.append(
                tuple(1e-5 * max(1 + i + density * (9 - 2 * i), 0.5) for i in range(len(names)))
            )
            if not on_row(Costs(names, tuple(densities), tuple(rows))):
                break
        return Costs(names, tuple(densities), tuple(rows))

    monkeypatch.setattr(module, "measure_site", made_up)
    options = {"samples": 1, "calls": 1, "progress": False, "seed": 5}
    run, *args = call
    whole = tune(run, *args, **options, cache=tmp_path / "whole")
    assert len(began) == 7
    parts = [tune(run, *args, **options, cache=tmp_path / "part", budget=1) for _ in range(2)]
    assert len(began) == 7 + 1, "one mask at least, and what is kept is not measured again"
    assert parts[0] == parts[1]
    assert tune(run, *args, **options, cache=tmp_path / "part") == whole
    assert len(began) == 7 + 7
    platform = home_platform()
    base = table_for(whole.device, platform)
    assert {e.op for e in base.entries} <= {e.op for e in whole.entries}
    assert len(whole.entries) >= len(base.entries)
    assert whole.constants == base.constants
    mine = [r for r in whole.rates if r not in base.rates]
    if platform == "cpu":
        assert mine or "keep the shipped choice" in whole.measured
    other = tune(run, *args, **(options | {"seed": 6}), cache=False)
    assert began[:7] != began[-7:]
    assert other.device == whole.device


def test_a_tuned_device_choice_stays_on():
    """A tuned shape in the shipped table: the kernel still chooses from the count."""
    densities = (0.1, 0.5, 1.0)
    with every_table():
        names = ("m128n128", "m256n128", "m128n64")
        costs = Costs(names, densities, tuple((9e-6 + d * 4e-5,) * 3 for d in densities))
        index = jax.eval_shape(lambda m: tile_index(m, (1, 1)), np.ones((1, 128, 128), bool))
        features = FEATURES | {"channels": 136, "outputs": 136}
        problem = Problem("masked_conv", "cuda", "bfloat16", features, 16384)
        mine = rates_of(problem, index, costs, H200)
        both = H200 | msgspec.structs.replace(H200, entries=(), rates=mine, constants=())
        near = both.nearest_shape("masked_conv", "bfloat16", (9, 136, 136, 1))
        held = both.rates_of("masked_conv", "bfloat16", near)
    assert near == (9, 136, 136, 1)
    assert {"box128", *names} <= held.keys()
    assert all(rate.shape == near for rate in held.values())


def test_shares_of_a_budget():
    clock = iter([0.0, 0.0, 0.0, 10.0, 50.0, 70.0])
    whole = tuner.Budget(10, 1.0, lambda: next(clock))
    half = whole.share(2)
    half.spend(3)
    assert half.allows(2)
    assert not half.allows(2), "half of the minutes are over"
    assert not whole.allows(1)
    assert not tuner.Budget(10).share(2).allows(6)
