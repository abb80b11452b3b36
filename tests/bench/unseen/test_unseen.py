"""Drawn problems: equal seeds give equal ones, within the limits; and what is said of them."""

import math

import pytest

from jaxsparse.bench.unseen.draw import CPU, GPU, OPS, Limits, draw
from jaxsparse.bench.unseen.run import MOST_ROUNDS, How, Seen, rounds_for, see
from jaxsparse.bench.unseen.summary import markdown, rank_correlation, summary, told, worst


@pytest.mark.parametrize("op", OPS)
def test_a_seed_is_a_draw(op):
    long, short = draw(op, 3, 12, "bfloat16", GPU), draw(op, 3, 5, "bfloat16", GPU)
    assert long[:5] == short
    assert len(set(map(str, long))) > 6
    assert list(map(str, draw(op, 4, 12, "bfloat16", GPU))) != list(map(str, long))


def test_convolutions_stay_within_the_limits():
    for drawn in draw("masked_conv", 0, 100, "float32", CPU):
        case = drawn.case
        assert math.prod(case.x_shape) <= CPU.elements
        assert case.macs <= CPU.macs
        assert case.channels % 8 == 0
        assert 8 <= case.outputs <= 640
        assert 0.02 <= drawn.density <= 1


def one(dense, ours, *, torch=None, density=0.1, variants=None, expected=None, wrong=()):
    return Seen(
        problem=f"{dense} {ours}",
        op="masked_conv",
        dtype="float32",
        mask="blobs",
        density=density,
        number=0,
        dense=dense,
        torch=torch,
        ours=ours,
        variants=variants or {},
        expected=expected or {},
        wrong=list(wrong),
        why="",
    )


def test_summary():
    seen = [
        one(100.0, 50.0, torch=60.0, variants={"a": 40.0, "b": 50.0}),
        one(40.0, 80.0, variants={"a": 90.0}),
        one(10.0, 10.0, density=0.77),
    ]
    said = dict(summary(seen))
    assert said["XLA dense: under 0.91x / 0.8x"] == "33.3% / 33.3%, worst 0.50x"
    assert said["XLA dense, 25 us or more, density 0.1: geomean"] == "1.00x of 2, worst 0.50x"
    assert said["torch: geomean of all"] == "1.20x"
    assert said["regret, mean / worst"] == "12.5% / 25.0%"
    assert worst(seen, 1) == [seen[1]]
    assert told(seen[0]).endswith(
        "2.00x dense, regret 25%; dense 100.0 us, ours 50.0 us, fastest a 40.0 us"
    )
    text = "\n".join(markdown("title", seen))
    assert "| regret, mean / worst | 12.5% / 25.0% |" in text
    assert text.index("- 40.0 80.0: 0.50x dense") < text.index("- 10.0 10.0: 1.00x dense")
    assert worst([*seen, one(1.0, None, wrong=["ours: error 3"])], 1)[0].wrong


def test_chains_of_short_calls_go_round():
    assert rounds_for(10, 1e6, 1e6, 0.0) == 1
    assert rounds_for(10, 0.0, 0.0, 4.0) == 40
    assert rounds_for(10, 1e12, 0.0, 4.0) == 1
    assert rounds_for(3, 0.0, 0.0, 1e9) == MOST_ROUNDS


def test_rank_correlation():
    measured, expected = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 10.0, "b": 20.0, "c": 30.0}
    turned = dict(zip(expected, reversed(expected.values()), strict=True))
    assert rank_correlation([one(1.0, 1.0, variants=measured, expected=expected)]) == 1
    assert rank_correlation([one(1.0, 1.0, variants=measured, expected=turned)]) == -1
    assert rank_correlation([one(1.0, 1.0)]) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_a_problem_is_measured_and_right(op):
    drawn = draw(op, 1, 1, "float32", Limits(2**14, 2**22))[0]
    seen = see(drawn, How(samples=1, torch=False))
    assert not seen.wrong
    assert seen.ours
    assert seen.dense
    assert op in seen.why
    assert seen.over_dense == seen.dense / seen.ours
