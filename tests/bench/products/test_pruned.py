"""`jaxsparse bench pruned_matmul | pruned_conv` on small cases, and a wrong result caught."""

import numpy as np
import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.products import pruned
from jaxsparse.bench.products.rows import ProductReport
from jaxsparse.bench.products.run import ProductPlan, measure
from jaxsparse.testing.pruned_cases import (
    PRUNED_CONV_CASES,
    PRUNED_MATMUL_CASES,
    PrunedConvCase,
    pruned_weight,
)

PLAN = ProductPlan(calls=2, samples=1, rotate_mb=0.0)
CASES = {
    "pruned_matmul": PRUNED_MATMUL_CASES["5x24x40"],
    "pruned_conv": PRUNED_CONV_CASES["b2_7x7x5_3x3_6"],
}


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments])


def all_rows(*arguments):
    return [measure(one, PLAN, lambda name: None) for one in pruned.comparisons(*arguments)]


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "highest"])
def test_rows(op, dtype):
    found = all_rows(CASES[op], dtype, PLAN, (0.0, 0.9, 1.0), ["dense"])
    assert len(found) == 3
    for rows in found:
        assert {"XLA dense", "jaxsparse", "dense"} <= {r.side for r in rows}
        assert all(r.correct for r in rows), rows
        assert {r.against for r in rows} == {"XLA dense"}
        assert {r.op for r in rows} == {op}
    assert ("BCOO" in {r.side for r in found[1]}) == (op == "pruned_matmul")


def test_strided():
    case = PrunedConvCase("x", 1, 9, 4, 5, 3, 2)
    (rows,) = all_rows(case, "float32", PLAN, (0.5,))
    assert all(r.correct for r in rows), rows


def test_weights_have_the_share_that_was_asked_for():
    weight = pruned_weight(CASES["pruned_matmul"], 0.9)
    assert np.count_nonzero(weight) == 24 * 40 - round(0.9 * 24 * 40)
    assert not np.array_equal(weight, pruned_weight(CASES["pruned_matmul"], 0.9, seed=1))


@pytest.mark.parametrize("op", CASES)
def test_command(op, tmp_path):
    file = tmp_path / "out.json"
    done = run(op, "--quick", "--no-device", "--variant=dense", f"--json={file}")
    assert done.exit_code == 0, done.output
    report = ProductReport.from_json(file.read_bytes())
    assert {"XLA dense", "jaxsparse", "dense"} <= {r.side for r in report.rows}


def test_a_wrong_result_is_caught(monkeypatch):
    right = pruned.pruned_matmul
    monkeypatch.setattr(pruned, "pruned_matmul", lambda *a, **k: right(*a, **k).at[0, 0].add(1))
    done = run("pruned_matmul", "--quick", "--no-device")
    assert done.exit_code == 1
    assert "jaxsparse" in done.output.split("not correct:")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pruned_matmul", "--case=nothing"], "nothing"),
        (["pruned_conv", "--sparsity=-1"], "-1"),
        (["pruned_conv", "--dtype=int8"], "int8"),
        (["pruned_matmul", "--variant=nonsense"], "nonsense"),
    ],
)
def test_bad_arguments(arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output
