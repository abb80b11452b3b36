"""Which candidates a sweep times, and on a GPU that it times them."""

import importlib.util
import time

import jax
import numpy as np
import pytest

from jaxsparse.index.chosen import lists_of, no_index
from jaxsparse.select.costs import Candidate
from jaxsparse.select.masked_conv.portfolio import MOST
from jaxsparse.select.variants import Variant
from jaxsparse.testing import case
from jaxsparse.tune import sweep

CAN_TIME = jax.default_backend() == "gpu" and importlib.util.find_spec("torch") is not None


def test_calls_hold_eight_and_rows_that_split_stand_apart(monkeypatch):
    names = [f"v{i}" for i in range(11)]
    fields = [{"split_k": 1}] * 9 + [{"split_k": 2}, {"split_k": 4}]
    rows = {
        n: Variant("masked_conv", "cuda", n, i, f)
        for i, (n, f) in enumerate(zip(names, fields, strict=True))
    }
    monkeypatch.setattr(sweep, "table", lambda op, platform: rows)
    given = [Candidate(n, i, 0, (0.0, 0.0, 0.0, 0.0, 0.0)) for i, n in enumerate(names)]
    groups = sweep.grouped(given)
    assert [len(g) for g in groups] == [8, 1, 1, 1]
    assert [g[0].variant for g in groups] == ["v0", "v8", "v9", "v10"]
    assert [c for group in groups for c in group] == given
    assert all(len(g) <= MOST for g in groups)


def test_the_index_of_a_sweep_has_both_lists():
    index = no_index((2, 20, 12), sweep.TILES)
    assert [like.tile for like in lists_of(index)] == [(1, 1), (8, 8)]
    assert [like.n_tiles for like in lists_of(index)] == [480, 12]


@pytest.mark.skipif(not CAN_TIME, reason="needs a GPU and torch")
def test_every_candidate_is_timed_and_right():
    from jaxsparse.bench.masked_conv.probe import ConvProbe

    problem = sweep.Sweep(ConvProbe(case("b1_40x40x256"), "bfloat16", calls=2))
    problem.compile()
    mask = np.zeros((1, 40, 40), bool)
    mask[0, 3:20, 5:9] = True
    start = time.perf_counter()
    found = list(problem.samples(mask, "rectangles", 0, repeat=1))
    elapsed = 1e6 * (time.perf_counter() - start)
    assert {s.variant for s in found} >= {"m128n256", "box64", "m128n64k4", "dense"}
    # Microseconds of the device, however busy it is: what was timed took no longer than the sweep.
    assert all(s.us > 0 for s in found)
    assert problem.probe.calls * sum(s.us for s in found) < elapsed
    assert found[0].counts == (68, 6)
