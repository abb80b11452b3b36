"""Calibration: a device that is made up is found as it is, and this machine's CPU is measured."""

import importlib
import re
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.select.masked_conv.scale import scale
from jaxsparse.select.roofline.calibration import read
from jaxsparse.select.roofline.machine import Machine, machine_of
from jaxsparse.select.table import shipped
from jaxsparse.tune.calibrate import (
    CPU,
    GPU,
    LONG,
    DeviceClock,
    Figure,
    Sizes,
    calibrate,
    expected_variants,
    figures,
    step_us,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "select"))
from choice_answers import every_table

SMALL = Sizes(1 << 12, 1 << 8, 16)
TRUE = Machine("made up", 100, 2.5e6, 6e6, 2e8, 1e8, 1.5, own=True)


class MadeUp:
    """A clock of a device with the rates of TRUE, whose every chain begins with 40 us."""

    def __init__(self, expected, slower):
        self.expected, self.slower, self.asked = expected, slower, []

    def seconds(self, what, steps):
        self.asked.append(what)
        if "/" in what:
            each = self.expected[what] * self.slower(what)
        elif what == "launch":
            each = TRUE.launch
        else:
            (figure,) = [f for f in figures(GPU) if f.what == what]
            each = figure.amount / getattr(TRUE, what) + TRUE.launch * (what == "l2")
        return 1e-6 * (40.0 + steps * each)


def slower(what):
    return 3.0 if what.startswith("float32") else 1.5


def test_a_made_up_device_is_found_as_it_is():
    other = shipped()["NVIDIA H200"]
    with every_table():
        tuning = scale(other, machine_of(other), TRUE)
        expected = expected_variants(TRUE, tuning)
    assert {tuple(name.split("/")[1:3]) for name in expected} == {
        ("48", "64"),
        ("64", "128"),
        ("40", "256"),
    }
    clock, seen = MadeUp(expected, slower), []
    made = calibrate(
        clock, "made up", 100, GPU, variants=lambda m: expected, on_step=seen.append, samples=2
    )
    for name in ("copy", "l2", "half", "tf32", "launch"):
        assert getattr(made, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    assert made.own
    assert seen == ["launch", "copy", "l2", "half", "tf32", *expected]
    assert {v for _, v, _ in made.variants} == {name.split("/")[3] for name in expected}
    assert all(times == slower(dtype) for dtype, _, times in made.variants)
    with every_table():
        slow = scale(other, machine_of(other), made)
    steps = {(r.dtype, r.variant, r.shape): r.step for r in tuning.rates if r.op == "masked_conv"}
    for rate in (r for r in slow.rates if r.op == "masked_conv" and r.variant == "m128n128"):
        want = steps[rate.dtype, rate.variant, rate.shape]
        times = slower("float32" if rate.dtype == "float32" else "bfloat16")
        if rate.dtype != "float16":
            assert rate.step == pytest.approx(times * want, abs=1e-3)


def test_a_budget_ends_the_variants():
    hours = iter(range(0, 10_000, 100))
    expected = {f"bfloat16/48/64/v{i}": 1.0 for i in range(9)}
    made = calibrate(
        MadeUp(expected, slower),
        "made up",
        100,
        GPU,
        variants=lambda m: expected,
        budget=250.0,
        now=lambda: next(hours),
    )
    assert [v for _, v, _ in made.variants] == ["v0", "v1"]


def test_this_machine_has_rates():
    """Small arrays: that every chain runs, not how fast."""
    clock = DeviceClock(SMALL)
    for figure in figures(SMALL):
        assert step_us(clock, figure._replace(long=LONG), 1) > 0
    assert {f.what for f in figures(CPU)} == {"launch", "copy", "l2", "half", "tf32"}
    assert Figure("copy", 1.0).short < Figure("copy", 1.0).long


def test_command(tmp_path, monkeypatch):
    module = importlib.import_module("jaxsparse.tune.calibrate")
    monkeypatch.setattr(module, "CPU", SMALL)
    monkeypatch.setattr(module, "GPU", SMALL)
    done = CliRunner().invoke(app, ["calibrate", "--seconds=1", f"--out={tmp_path}"])
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.glob("*.json")
    device = msgspec.json.decode(path.read_bytes())["machine"]["device"]
    made = read(device, tmp_path)
    assert made.own
    assert re.search(r"copy in the cache +│ +[\d.e+-]+ TB/s", done.output)
