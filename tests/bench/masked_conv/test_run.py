"""`jaxsparse bench masked_conv` on a small case: right rows, files, and a wrong variant caught."""

import json

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.masked_conv.run import Plan, measure, platform_name
from jaxsparse.bench.report.report import Report
from jaxsparse.bench.report.rows import DENSE
from jaxsparse.ops.masked_conv import native as masked_conv_native
from jaxsparse.select.variants import table
from jaxsparse.testing import case

QUICK = Plan(densities=(0.2, 1.0), samples=2, calls=4, rotate_mb=0.0, torch=False)
CASE = "b1_16x16x16_quick"


@pytest.fixture
def fresh_traces():
    """Ops keep their traces: a patched handler needs new ones, and must leave none behind."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def silent(name):
    del name


def run(*arguments):
    return CliRunner().invoke(app, ["bench", "masked_conv", *arguments])


def test_rows_are_right():
    groups = list(measure(case(CASE), "blobs", "float32", QUICK, silent))
    assert len(groups) == 2
    sides = [row.side for row in groups[0]]
    assert sides[0] == DENSE
    assert {"ours, static", "ours, switch", "variant dense"} <= set(sides)
    names = {f"variant {name}" for name in table("masked_conv", platform_name())}
    assert len(names & set(sides)) >= 4
    for row in (r for rows in groups for r in rows):
        assert row.correct, row
        assert row.wall_us > 0
        assert row.wall_low_us <= row.wall_us <= row.wall_high_us
    assert groups[0][0].pixel_density == pytest.approx(0.2, abs=0.01)
    assert groups[1][0].pixel_density == groups[1][0].tile_density == 1.0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "highest"])
def test_other_dtypes(dtype):
    plan = Plan(densities=(0.3,), samples=1, calls=3, rotate_mb=0.0, torch=False, variants=())
    (rows,) = measure(case("odd_7x7_stride2"), "random", dtype, plan, silent)
    assert all(row.correct for row in rows), rows


def test_a_result_without_pixels():
    plan = Plan(densities=(0.3,), samples=1, calls=3, rotate_mb=0.0, torch=False, variants=())
    (rows,) = measure(case("odd_window_too_large"), "random", "float32", plan, silent)
    assert all(row.correct for row in rows), rows


def test_densities_of_tiles():
    plan = Plan(
        densities=(0.4,), by="tile", tile=(4, 4), samples=1, calls=3, torch=False, variants=()
    )
    (rows,) = measure(case(CASE), "blobs", "float32", plan, silent)
    assert rows[0].tile_density == pytest.approx(0.4, abs=0.1)
    assert rows[0].pixel_density < rows[0].tile_density
    assert rows[0].tile == "4x4"


def test_indices_built_before():
    plan = Plan(
        densities=(0.4,), index_every=0, samples=1, calls=3, torch=False, variants=(), device=True
    )
    (rows,) = measure(case(CASE), "blobs", "float32", plan, silent)
    assert all(row.correct and row.device_us is not None for row in rows)


@pytest.mark.usefixtures("fresh_traces")
def test_a_wrong_variant_is_caught(monkeypatch):
    platform = platform_name()
    bad = next(iter(table("masked_conv", platform)))
    right = masked_conv_native.forward

    def wrong(p, where, variant, *args):
        out = right(p, where, variant, *args)
        return out.at[0, 3, 3, 0].add(jnp.asarray(0.01, out.dtype)) if variant == bad else out

    monkeypatch.setattr(masked_conv_native, "forward", wrong)
    arguments = ("--quick", "--case", CASE, "--density", "1", "--no-torch")
    done = run(*arguments, "--selection", "static", "--variant", bad, "--variant", "dense")
    assert done.exit_code == 1
    assert f"variant {bad}" in done.output.split("not correct:")[1]
    assert "variant dense" not in done.output.split("not correct:")[1]


def test_files(tmp_path):
    names = {form: tmp_path / f"out.{form}" for form in ("json", "csv", "markdown", "png")}
    arguments = [f"--{k if k != 'png' else 'plot'}={path}" for k, path in names.items()]
    done = run("--quick", "--density=0.2", "--density=1", "--variant=none", *arguments)
    assert done.exit_code == 0, done.output
    assert "XLA dense" in done.output
    report = Report.from_json(names["json"].read_bytes())
    assert report.correct
    assert len(report.rows) >= 2 * 3
    assert json.loads(names["json"].read_text())["provenance"]["versions"]["jax"]
    assert len(names["csv"].read_text().splitlines()) == 1 + len(report.rows)
    assert names["markdown"].read_text().startswith("# masked_conv")
    assert names["png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case=nothing"], "nothing"),
        (["--mask=stars"], "stars"),
        (["--dtype=int8"], "int8"),
        (["--selection=maybe"], "maybe"),
        (["--by=weight"], "weight"),
        (["--tile=4"], "4x4"),
        (["--density=1.5"], "1.5"),
        (["--variant=nothing"], "nothing"),
    ],
)
def test_bad_arguments(arguments, message):
    done = run("--quick", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_unknown_op():
    done = CliRunner().invoke(app, ["bench", "sorted_conv"])
    assert done.exit_code == 2
    assert "sorted_conv" in done.output
