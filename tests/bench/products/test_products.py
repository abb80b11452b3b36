"""`jaxsparse bench grouped_matmul | masked_matmul | moe` on small cases: right rows, files, and a
wrong result caught.
"""

import json

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.products import (
    grouped_matmul,
    masked_matmul,
    moe,
    sparse_attention,
    sparse_ffn,
)
from jaxsparse.bench.products.rows import ProductReport
from jaxsparse.bench.products.run import ProductPlan, element_type, measure
from jaxsparse.testing.attention_cases import ATTENTION_CASES
from jaxsparse.testing.ffn_cases import FFN_CASES
from jaxsparse.testing.product_cases import (
    GROUPED_CASES,
    MATMUL_CASES,
    MOE_CASES,
    MatmulCase,
    MoeCase,
)

PLAN = ProductPlan(calls=2, samples=1, rotate_mb=0.0, rivals=False)
SIDES = {
    "grouped_matmul": {"ragged_dot", "jaxsparse"},
    "masked_matmul": {"dense, mask multiplied in", "jaxsparse", "XLA dense"},
    "sparse_attention": {
        "jax.nn, with the mask",
        "jax.nn, no mask",
        "jaxsparse",
        "jaxsparse, mask made in the call",
    },
    "moe": {"serial loop", "padded batch", "ragged_dot", "jaxsparse"},
}


def silent(name):
    del name


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments])


def all_rows(comparisons, plan=PLAN):
    return [measure(one, plan, silent) for one in comparisons]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "highest"])
def test_grouped(dtype):
    found = all_rows(grouped_matmul.comparisons(GROUPED_CASES["t96_e5_24x40"], dtype, PLAN))
    assert [rows[0].what for rows in found] == list(grouped_matmul.WHATS)
    for rows in found:
        assert SIDES["grouped_matmul"] <= {r.side for r in rows}
        assert all(r.correct for r in rows), rows
        assert {r.against for r in rows} == {"ragged_dot"}
        assert all(r.temporary_mb is not None for r in rows)
    assert found[0][-1].side == "dense, same FLOPs"


@pytest.mark.parametrize("masked", ["a", "b", "out"])
@pytest.mark.parametrize("block", [(32, 64), (32, 1), (5, 7)])
def test_masked(masked, block):
    case = MatmulCase("x", 90, 70, 50, block, masked)
    for rows in all_rows(masked_matmul.comparisons(case, "float32", PLAN, (0.0, 0.9, 1.0))):
        assert {r.side for r in rows} == SIDES["masked_matmul"]
        assert all(r.correct for r in rows), rows
        assert {r.against for r in rows} == {"XLA dense"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention(dtype):
    case = ATTENTION_CASES["b2_t96_h4_of_2_d16_16x16"]
    with jax.numpy_dtype_promotion("standard"):  # jax.nn's own code mixes dtypes
        found = all_rows(sparse_attention.comparisons(case, dtype, PLAN, (0.0, 0.8)))
    assert [rows[0].what.split(",")[0] for rows in found] == ["forward"] * 2 + ["gradient"] * 2
    for rows in found:
        assert {r.side for r in rows} == SIDES["sparse_attention"]
        assert all(r.correct for r in rows), rows
        assert {r.against for r in rows} == {sparse_attention.MASKED}


def test_ffn():
    case = FFN_CASES["t3_16x40_gated"]
    found = all_rows(sparse_ffn.comparisons(case, "float32", PLAN, (0.8,), sparse_ffn.WHATS))
    assert [rows[0].what.split(",")[0] for rows in found] == ["forward", "gradient"]
    for rows in found:
        by_rows = {sparse_ffn.BY_ROWS} if rows[0].what.startswith("forward") else set()
        assert {r.side for r in rows} == {sparse_ffn.DENSE, sparse_ffn.OURS} | by_rows
        assert all(r.correct for r in rows), rows


def test_bcoo_beside_it():
    plan = ProductPlan(calls=1, samples=1, rotate_mb=0.0)
    case = MATMUL_CASES["96_a_32x1"]
    (rows,) = all_rows(masked_matmul.comparisons(case, "float32", plan, (0.9,)), plan)
    assert next(r for r in rows if r.side == "BCOO").correct, rows


@pytest.mark.parametrize(("dtype", "what"), [("float32", moe.WHATS[1]), ("bfloat16", moe.WHATS[0])])
def test_moe(dtype, what):
    """Results, and gradients of the tokens and of every parameter, on two sets of inputs."""
    plan = ProductPlan(calls=1, samples=2, rotate_mb=0.016, rivals=False)
    case = MOE_CASES["quick_e4"]
    (rows,) = all_rows(moe.comparisons(case, dtype, plan, [what]), plan)
    assert rows[0].rotated_mb >= 2 * case.tokens * case.d * element_type(dtype).itemsize / 1e6
    assert rows[0].what == what
    assert {r.side for r in rows} == SIDES["moe"]
    assert all(r.correct for r in rows), rows


def test_moe_with_relu_and_one_expert_a_token():
    case = MoeCase("x", 1, 16, 24, 4)
    (rows,) = all_rows(moe.comparisons(case, "float32", PLAN, ["forward"]))
    assert all(r.correct for r in rows), rows


def test_a_wrong_result_and_a_failure_are_caught(monkeypatch):
    right = moe.ours

    def wrong(case, x, p, precision, implementation):
        y = right(case, x, p, precision, implementation)
        return y if implementation == "reference" else y.at[3, 3].add(jnp.asarray(0.01, y.dtype))

    def broken(precision):
        raise RuntimeError(f"no such product at {precision}")

    monkeypatch.setattr(moe, "ours", wrong)
    monkeypatch.setattr(moe, "ragged", broken)
    done = run("moe", "--quick", "--what", "forward")
    assert done.exit_code == 1
    told = done.output.split("not correct:")[1]
    assert "jaxsparse" in told
    assert "ragged_dot" in told
    assert "serial loop" not in told
    assert "no such product" in done.output


@pytest.mark.parametrize("op", SIDES)
def test_files(op, tmp_path):
    names = {form: tmp_path / f"out.{form}" for form in ("json", "csv", "markdown")}
    what = [] if op == "masked_matmul" else ["--what=forward"]
    files = [f"--{k}={path}" for k, path in names.items()]
    done = run(op, "--quick", "--no-device", *what, *files)
    assert done.exit_code == 0, done.output
    assert "jaxsparse" in done.output
    report = ProductReport.from_json(names["json"].read_bytes())
    assert report.correct
    assert {r.op for r in report.rows} == {op}
    assert SIDES[op] <= {r.side for r in report.rows}
    for row in report.rows:
        assert row.wall_us > 0
        assert row.wall_low_us <= row.wall_us <= row.wall_high_us
    assert json.loads(names["json"].read_text())["provenance"]["versions"]["jax"] == jax.__version__
    assert len(names["csv"].read_text().splitlines()) == 1 + len(report.rows)
    assert names["markdown"].read_text().startswith(f"# {op}")


def test_device_times_need_several_sets():
    plan = ProductPlan(calls=1, samples=1, rotate_mb=0.0, device=True, rivals=False)
    case = GROUPED_CASES["t96_e5_24x40"]
    (rows,) = all_rows(grouped_matmul.comparisons(case, "float32", plan, ["fused"]), plan)
    assert all(r.device_us is not None and r.correct for r in rows), rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grouped_matmul", "--case=nothing"], "nothing"),
        (["grouped_matmul", "--what=sideways"], "sideways"),
        (["masked_matmul", "--dtype=int8"], "int8"),
        (["masked_matmul", "--sparsity=1.5"], "1.5"),
        (["moe", "--what=backward"], "backward"),
        (["moe", "--calls=0"], "calls"),
    ],
)
def test_bad_arguments(arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_reports_are_read_strictly():
    with pytest.raises(ValueError, match="not a report"):
        ProductReport.from_json(b"{}")
    with pytest.raises(ValueError, match="dtype='int4'"):
        element_type("int4")


def test_the_challenge_is_a_command():
    done = run("challenge", "--help")
    assert done.exit_code == 0
    assert "neurons" in done.output
