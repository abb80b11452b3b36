"""The stopwatch: medians, turns, device time by difference, and a side that fails."""

import math

import numpy as np
import pytest

from jaxsparse.bench.measure.timing import Samples, interleave


class Clock:
    """Seconds that pass when a side says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Scripted:
    """Chains of `calls` calls of `cost` seconds, and `fixed` seconds for each wait."""

    def __init__(self, name, clock, *, cost, fixed=0.0, calls=10, sets=1, errors=()):
        self.name, self.clock, self.cost, self.fixed = name, clock, cost, fixed
        self.calls, self.sets, self.errors = calls, sets, list(errors)
        self.checked = 0

    def enqueue(self, which):
        assert 0 <= which < self.sets
        self.clock.now += self.cost * self.calls

    def wait(self):
        self.clock.now += self.fixed

    def error(self, which):
        self.checked += 1
        return self.errors.pop(0) if self.errors else 0.0


def test_wall_time_is_a_chain_over_its_calls():
    clock = Clock()
    sides = [Scripted("a", clock, cost=2e-6, fixed=1e-5), Scripted("b", clock, cost=4e-6)]
    took = interleave(sides, samples=5, clock=clock)
    assert took["a"].wall_median == pytest.approx(2e-6 + 1e-6)
    assert took["b"].wall_median == pytest.approx(4e-6)
    assert len(took["a"].wall) == 5
    assert math.isnan(took["a"].device_median)


def test_device_time_leaves_out_what_a_chain_costs_once():
    clock = Clock()
    side = Scripted("a", clock, cost=2e-6, fixed=1e-3, sets=4)
    took = interleave([side], samples=3, device=True, clock=clock)["a"]
    assert took.device_median == pytest.approx(2e-6)
    assert took.wall_median == pytest.approx(2e-6 + 1e-4)


def test_every_timed_output_is_checked():
    clock = Clock()
    side = Scripted("a", clock, cost=1e-6, sets=3, errors=[0, 0, 0, 0, 0.5])
    took = interleave([side], samples=2, clock=clock)["a"]
    assert side.checked == 3 + 2
    assert took.error == 0.5


def test_a_failure_ends_one_side_only():
    clock = Clock()

    class Broken(Scripted):
        def wait(self):
            if self.checked > 1:
                raise RuntimeError("lost")

    sides = [Broken("bad", clock, cost=1e-6), Scripted("good", clock, cost=1e-6)]
    steps = []
    took = interleave(sides, samples=4, clock=clock, on_step=steps.append)
    assert took["bad"].failure == "RuntimeError: lost"
    assert len(took["good"].wall) == 4
    assert steps.count("good") == 5


def test_names_are_distinct():
    clock = Clock()
    with pytest.raises(ValueError, match="distinct names"):
        interleave([Scripted("a", clock, cost=1), Scripted("a", clock, cost=1)], samples=1)


def test_quartiles():
    low, high = Samples(wall=[1.0, 2.0, 3.0, 4.0, 5.0]).wall_quartiles
    assert (low, high) == (2.0, 4.0)
    assert np.isnan(Samples().wall_quartiles).all()
