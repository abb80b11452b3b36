"""Reports: crossovers, and the files."""

import csv
import io
import math

import pytest

from jaxsparse.bench.report.crossover import crossover, crossover_text
from jaxsparse.bench.report.provenance import (
    PACKAGE,
    command_line,
    device_slug,
    provenance,
)
from jaxsparse.bench.report.report import Report
from jaxsparse.bench.report.rows import DENSE, Row, cell


def row(side, density, wall, speedup, **more):
    values = {
        "op": "masked_conv",
        "case": "c",
        "mask": "blobs",
        "dtype": "float32",
        "side": side,
        "pixel_density": density,
        "tile_density": min(1.0, 1.5 * density),
        "tile": "2x4",
        "index_every": 2,
        "calls": 10,
        "rotated_mb": 64.0,
        "wall_us": wall,
        "wall_low_us": wall,
        "wall_high_us": wall,
        "device_us": None,
        "speedup": speedup,
        "device_speedup": None,
        "error": 0.0,
        "tolerance": 2e-5,
        "correct": True,
    }
    return Row(**values | more)


@pytest.fixture
def report():
    rows = []
    for density, ours in ((0.1, 25.0), (0.5, 50.0), (1.0, 200.0)):
        rows += [row(DENSE, density, 100.0, 1.0), row("ours", density, ours, 100.0 / ours)]
    return Report(provenance("jaxsparse bench"), tuple(rows))


def test_crossover():
    assert crossover([0.1, 0.5, 1.0], [4.0, 2.0, 0.5]) == pytest.approx(0.75)
    assert crossover([1.0, 0.5, 0.1], [0.5, 2.0, 4.0]) == pytest.approx(0.75)
    assert crossover([0.1, 1.0], [4.0, 1.5]) == math.inf
    assert crossover([0.1, 1.0], [0.9, 0.5]) == 0.0
    assert crossover([], []) is None
    assert crossover([0.1, 0.5, 1.0], [0.81, 0.93, 1.02]) is None


@pytest.mark.parametrize(
    ("speedups", "text"),
    [((0.81, 0.93, 1.02), "at 1"), ((2.0, 0.9, 1.5), "at 0.1, 1"), ((0.5, 1.5, 2.0), "at 0.5-1")],
)
def test_what_is_not_monotone_names_its_densities(speedups, text):
    densities = (0.1, 0.5, 1.0)
    rows = [row("ours", d, 100.0 / s, s) for d, s in zip(densities, speedups, strict=True)]
    assert crossover_text(rows) == text


def test_crossover_text(report):
    ours = [r for r in report.rows if r.side == "ours"]
    assert crossover_text(ours) == "0.75 / 0.88"
    assert crossover_text([r for r in report.rows if r.side == DENSE]) == ""
    assert crossover_text(ours[:1]) == "always"
    assert crossover_text(ours[2:]) == "never"


def test_json_round_trip(report):
    assert Report.from_json(report.to_json()) == report
    with pytest.raises(ValueError, match="not a report"):
        Report.from_json(b"{}")


def test_csv_carries_the_provenance(report):
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(rows) == 6
    assert rows[1]["side"] == "ours"
    assert float(rows[1]["speedup"]) == 4.0
    assert rows[0]["device"] == report.provenance.device
    assert {"date", "commit", "jax", "jaxlib", "jaxsparse"} <= rows[0].keys()


def test_markdown(report):
    text = report.to_markdown()
    assert "| ours | 25 ±0% (4.00x) | 50 ±0% (2.00x) | 200 ±0% (0.50x) | 0.75 / 0.88 |" in text
    assert report.provenance.date in text
    assert "jaxsparse bench" in text


def test_markdown_has_device_times(report):
    dense = row(DENSE, 0.1, 100.0, 1.0, device_us=80.0, device_speedup=1.0)
    rows = dense, row("ours", 0.1, 25.0, 4.0, device_us=40.0, device_speedup=2.0)
    text = Report(report.provenance, rows).to_markdown()
    assert "On the device:" in text
    assert "| ours | 40 (2.00x) |" in text
    assert "On the device:" not in report.to_markdown()


def test_cells_show_the_spread():
    assert cell(row("ours", 0.1, 100.0, 4.0, wall_low_us=90.0, wall_high_us=110.0)) == (
        "100 ±10% (4.00x)"
    )
    assert cell(row(DENSE, 0.1, 12345.6, 1.0)) == "12,346 ±0%"


def test_what_went_wrong_shows():
    wrong = row("ours", 0.1, 10.0, 10.0, correct=False, error=0.5)
    failed = row("ours", 0.1, None, None, correct=False, note="RuntimeError: lost")
    assert cell(wrong) == "wrong"
    assert cell(failed) == "failed"
    assert not Report(provenance(), (wrong,)).correct


def test_write_needs_a_form(report, tmp_path):
    with pytest.raises(ValueError, match="form='xlsx'"):
        report.write(tmp_path / "a", "xlsx")


@pytest.mark.parametrize(
    ("started", "text"),
    [
        (PACKAGE / "__main__.py", "jaxsparse --size 4"),
        (PACKAGE / "bench" / "challenge" / "__main__.py", "python -m jaxsparse.bench.challenge"),
        ("/usr/bin/jaxsparse", "jaxsparse --size 4"),
        ("folder/one.py", "python folder/one.py --size 4"),
        ("/elsewhere/one.py", "python one.py --size 4"),
    ],
)
def test_command_line(monkeypatch, started, text):
    monkeypatch.setattr("sys.argv", [str(started), "--size", "4"])
    assert command_line().startswith(text)


def test_device_slug():
    assert device_slug("Intel(R) Xeon(R) CPU, 2 cores") == "intel_xeon_cpu_2_cores"
    assert device_slug("NVIDIA H200") == "nvidia_h200"
