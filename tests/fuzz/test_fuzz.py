"""The fuzzer: a few problems of every operation, those that failed once, and that it sees a fault.

`make fuzz SECONDS=n SEED=k` draws more.
"""

import dataclasses

import numpy as np
import pytest

import jaxsparse as js
from fuzz import run
from fuzz.problem import WAYS, Draw
from fuzz.problems import OPS, draw
from fuzz.run import check, corpus, mark
from fuzz.ways import WAYS as RUNS
from fuzz.ways import near, way_of
from jaxsparse.ffi.register import module

pytestmark = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
#: Not operations on arrays, or run by every problem.
APART = {
    *("config", "checked", "explain", "variants", "tune", "record_masks", "prune_model", "prune"),
    *(
        "show",
        "plot",
        "kept_blocks",
        "unpack_mask",
        "unpack_tokens",
        "combine",
        "create_block_mask",
    ),
    *("token_index", "mask", "nn", "bounded", "pruned", "recorder"),
}


@pytest.mark.parametrize("op", OPS)
def test_problems_are_right(op):
    assert not [why for number in range(2) if (why := check(op, 0, number, 3))]


def test_problems_that_failed_once_are_right():
    """A line whose problem another one has taken the place of says nothing: it is to be replaced
    by one that draws the like again.
    """
    lines = corpus()
    assert not [line for line in lines if mark(*line[:3]) != line[4]], "other problems by now"
    assert not [why for line in lines if (why := check(*line[:4]))]


def test_every_operation_has_problems():
    """By its own name; what is left out goes with another one or takes no arrays."""
    public = {n for n in js.__all__ if n[0].islower()} - APART
    assert not public - {*OPS}


def test_every_way_is_drawn():
    ways = {way_of(*draw(op, 0, number)) for op in OPS for number in range(20)}
    assert ways == {*WAYS} == {*RUNS}


def test_equal_numbers_draw_equal_problems():
    first, again = (draw("masked_conv", 3, 4) for _ in range(2))
    assert first[0].text == again[0].text
    assert mark("masked_conv", 3, 4) == mark("masked_conv", 3, 4) != mark("masked_conv", 3, 5)
    for one, other in zip(*(p.draw(d.rng) for p, d in (first, again)), strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


@pytest.mark.parametrize("way", [way for way in WAYS if way != "mesh"])
def test_a_fault_is_seen(way):
    """One weight in a hundred counts for half as much."""
    problem, _ = draw("masked_dense", 5, 0)
    _, depth = problem.floats["w"][0]
    off = np.ones(depth, np.float32)
    off[:: max(min(depth // 2, 100), 1)] = 0.5
    bad = dataclasses.replace(
        problem,
        floats={"x": ((20, 30), np.dtype("float32")), "w": ((30, depth), np.dtype("float32"))},
        data=lambda rng: {},
        call=lambda x, w: x @ (w * off),
        meaning=lambda x, w: x @ w,
        unread=lambda operands: {},
        edges=None,
        wide=lambda rng, shape: np.ones(shape),
    )
    found = RUNS[way](bad, Draw(np.random.default_rng(0)), 2)
    assert "wrong by" in found or "not" in found


def test_draws_near_an_edge_are_left_out():
    """Draws that are exactly on an edge are kept."""
    assert near([np.array([1.0, -1e-5])])
    assert not near([np.array([1.0, 0.0]), np.array([-0.1])])


def test_nan_that_is_read_is_seen():
    """Where the problem says that nothing is read."""
    problem, drawn = draw("masked_dense", 5, 1)
    bad = dataclasses.replace(
        problem,
        floats={"x": ((4, 3), np.dtype("float32"))},
        data=lambda rng: {},
        call=lambda x: x * 1,
        meaning=lambda x: np.asarray(x),
        unread=lambda operands: {"x": np.ones((4, 3), bool)},
    )
    assert "wrong by" in RUNS["values"](bad, drawn, 20)


def test_a_failure_is_kept_and_the_command_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "checked", lambda *given: ("it is wrong", 1))
    given = ["run.py", "--op", "route", "--seed", "7", "--count", "1", "--keep", str(tmp_path)]
    monkeypatch.setattr("sys.argv", given)
    assert run.main() == 1
    op, seed, number, draws, its = (tmp_path / "route.txt").read_text().split()
    assert (op, seed, number, draws) == ("route", "7", "0", str(run.DRAWS))
    assert its == mark("route", 7, 0)
    assert "--op route --seed 7 --number 0 --draws 20" in capsys.readouterr().out
