"""Costs as staircases, and what the choice makes of them."""

import dataclasses
import math

import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.device import home_platform
from jaxsparse.select.choice import Against, Offer, Reason
from jaxsparse.select.config import override
from jaxsparse.select.costs import (
    EVERY,
    Candidate,
    cheapest,
    line,
    mean_cost,
    rows_of,
    staircase,
)
from jaxsparse.select.problem import Problem
from jaxsparse.select.select import decide
from jaxsparse.select.table import Rate, shipped
from jaxsparse.select.variants import Variant

RATE = Rate("masked_conv", "float32", "wide", 2.0, 3.0, 1.0)
PROBLEM = Problem("masked_conv", "cuda", "float32", {}, 1000)


def test_a_wave_costs_the_same_however_full():
    stairs = staircase(RATE, 10.0, 128.9, streams=False, number=5, tiles=None)
    assert [stairs.at(n) for n in (0, 1, 128, 129, 256)] == [2.0, 12.0, 12.0, 22.0, 22.0]
    shared = staircase(RATE, 10.0, 100.0, streams=True, number=5, tiles=None)
    assert shared.at(50) == pytest.approx(7.0)
    every = staircase(RATE, 10.0, 100.0, streams=False, number=5, tiles=250)
    assert every.list == EVERY
    assert every.at(3) == every.at(250) == 32.0


@pytest.mark.parametrize("full", [10, 25, 50, 100, 1000])
def test_a_streamed_tile_takes_no_less_than_its_parts(full):
    """Four CTAs at most share a tile: of a wave of 100 us and 100 tiles, 25 us at least."""
    at = staircase(RATE, 100.0, 100.0, streams=True, number=5, full=full).at
    true = [2.0 + max(float(n), 25.0) for n in range(full + 1)]
    assert at(full) == pytest.approx(true[-1])
    if full <= 25:  # the mask never fills the device
        assert [at(n) for n in range(full + 1)] == pytest.approx(true)
    assert at(0) <= true[0] + 1e-6
    assert full < 1000 or at(0) == 2.0
    every = staircase(RATE, 100.0, 100.0, streams=True, number=5, tiles=full)
    assert every.at(0) == pytest.approx(true[-1])


def test_a_line_has_no_waves():
    row = line(RATE, 2.0, 0.5, number=1, tiles=None)
    assert row.at(10) == pytest.approx(2.0 + 2.0 + 15.0)
    assert line(RATE, 2.0, 0.5, number=1, tiles=10).at(0) == pytest.approx(19.0)


def test_rows_are_what_the_handlers_take():
    rows = rows_of((staircase(RATE, 10.0, 128.0, streams=False, number=5, tiles=None),))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[2.0, 0.0, 0.0, 10.0, 128.0]])


def test_the_first_of_the_least_wins():
    flat = [Candidate(n, i, 0, (5.0, 0.0, 0.0, 0.0, 0.0)) for i, n in enumerate("ab")]
    assert cheapest(tuple(flat), 7).variant == "a"
    assert mean_cost(tuple(flat), 10) == 5.0


def offer(*costs):
    rows = [Candidate(f"v{i}", i, 0, (a, b, 0.0, 0.0, 0.0)) for i, (a, b) in enumerate(costs)]
    alone = {r.variant: r for r in rows}
    return Offer(tuple(alone), Reason.FIRST, alone, tuple(rows), (1000,))


def test_the_default_takes_the_device_where_it_pays():
    together = offer((1.0, 1.0), (100.0, 0.0))
    choice = decide(PROBLEM, together)
    assert choice.how == "device"
    assert choice.variant((0,), 1000) == "v0"
    assert choice.variant((900,), 1000) == "v1"
    alone = decide(PROBLEM, offer((1.0, 1.0)))
    assert alone.how == "static"
    assert alone.against_device is Against.ALONE
    assert alone.runner_up == "device"
    assert alone.runner_up_us == pytest.approx(alone.us + 0.5)


def with_dense(us):
    found = offer((30.0, 0.0), (40.0, 0.0))
    dense = Candidate("dense", -1, EVERY, (us, 0.0, float(EVERY), 0.0, 0.0))
    return dataclasses.replace(
        found, names=(*found.names, "dense"), costs={**found.costs, "dense": dense}
    )


def test_dense_takes_over_where_a_full_mask_may_lose_more():
    new = dataclasses.replace(PROBLEM, features={"pixels": 7.0})
    # The device's call takes 30 us of any mask, and 3.5 for the index and the choice.
    taken = decide(new, with_dense(33.0))
    assert (taken.how, taken.first, taken.reason) == ("static", "dense", Reason.SAFER)
    assert (taken.us, taken.runner_up) == (33.0, "v0")
    assert decide(new, with_dense(34.0)).first != "dense"
    own = dataclasses.replace(new, own=True)
    on_cpu = dataclasses.replace(new, platform="cpu")
    assert all(decide(each, with_dense(1.0)).first != "dense" for each in (own, on_cpu))
    pixels = shipped()["NVIDIA H200"].entries[0].features
    known = dataclasses.replace(new, features=pixels, dtype="bfloat16")  # it was measured
    with js.config(tuning=shipped()["NVIDIA H200"]):
        assert decide(known, with_dense(1.0)).first != "dense"
        assert decide(new, with_dense(1.0)).first == "dense"
    with js.config(selection="device"):
        assert decide(new, with_dense(1.0)).how == "device"


def test_between_full_and_typical_masks_counts_the_mean_of_logarithms(monkeypatch):
    new = dataclasses.replace(PROBLEM, features={"pixels": 7.0})
    rising = (Candidate("v0", 0, 0, (0.5, 0.1, 0.0, 0.0, 0.0)),)
    found = dataclasses.replace(with_dense(0.0), together=rising)
    mean, full = mean_cost(rising, 1000) + 3.5, rising[0].at(1000) + 3.5
    between = math.sqrt(mean * full)
    assert mean < 0.95 * between < 1.05 * between < full

    def takes(us):
        dense = Candidate("dense", -1, EVERY, (us, 0.0, float(EVERY), 0.0, 0.0))
        return decide(new, dataclasses.replace(found, costs={**found.costs, "dense": dense}))

    assert takes(0.95 * between).reason is Reason.SAFER
    assert takes(1.05 * between).first != "dense"
    monkeypatch.setattr("jaxsparse.select.select.is_hopper", lambda: False)  # estimates
    assert takes(0.95 * between).first != "dense"
    assert takes(0.64 * between).reason is Reason.SAFER


def test_who_asks_gets_it():
    with js.config(selection="device"):
        assert decide(PROBLEM, offer((1.0, 1.0))).how == "device"
        assert decide(PROBLEM, Offer(("v0",))).against_device is Against.NOT_OFFERED
    with js.config(selection="static"):
        assert decide(PROBLEM, offer((1.0, 1.0), (100.0, 0.0))).how == "static"
    with override(variant="v1"):
        found = decide(PROBLEM, offer((1.0, 1.0), (9.0, 0.0)))
    assert found.reason is Reason.DEMANDED
    assert (found.first, found.us) == ("v1", 9.0)
    assert found.runner_up == "v0"


def test_a_name_alone_speaks_to_some_ops_only():
    with override(variant="v1"):
        assert decide(PROBLEM, Offer(("v0", "v1")), by_name=False).first == "v0"
    with js.config(variant=Variant("masked_conv", "cuda", "v1", 1, {})):
        assert decide(PROBLEM, Offer(("v0", "v1")), by_name=False).first == "v1"


def test_who_demands_what_cannot_run_is_told_why():
    home = dataclasses.replace(PROBLEM, platform=home_platform())
    with override(variant="v2"), pytest.raises(ValueError, match=r"v2.*\(full moon\).*v0, v1"):
        decide(home, Offer(("v0", "v1")), lambda: {"v2": "full moon"})


def test_every_reason_is_a_sentence():
    """With the facts of any choice; none is said twice."""
    choice = decide(PROBLEM, offer((1.0, 1.0)))
    for reason in Reason:
        for speaks in (None, *Against):
            said = dataclasses.replace(choice, reason=reason, against_device=speaks).why
            assert said
            assert "{" not in said
    sentences = [r.value for r in (*Reason, *Against)]
    assert len({*sentences}) == len(sentences)


def test_a_cpu_does_not_leave_it_to_the_device_unasked():
    on_cpu = Problem("masked_conv", "cpu", "float32", {}, 1000)
    found = decide(on_cpu, offer((1.0, 1.0), (100.0, 0.0)))
    assert found.how == "static"
    assert found.against_device is Against.NOT_ASKED


def test_rates_of_a_table():
    table = js.TuningTable(device="x", measured="", entries=(), rates=(RATE,))
    assert table.rates_of("masked_conv", "float32") == {"wide": RATE}
    assert table.rates_of("masked_conv", "bfloat16") == {}
    assert js.TuningTable.from_json(table.to_json()) == table
