"""The analytic bound against the sweeps that the shipped rates were fitted to, and tables of
devices that were not swept.
"""

import math
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parent))
from choice_answers import every_table
from choice_problems import DEVICES, on

from jaxsparse.select.masked_conv.bound import bound_us
from jaxsparse.select.masked_conv.cost import Work, candidate
from jaxsparse.select.masked_conv.scale import scale
from jaxsparse.select.roofline import calibration
from jaxsparse.select.roofline.bound import bound, kept
from jaxsparse.select.roofline.machine import Machine, by_ratio, machine_of, published
from jaxsparse.select.table import DENSE, shipped, table_for
from jaxsparse.select.variants import table

H200 = shipped()["NVIDIA H200"]
FAKE = Machine("fake", 10, 1e6, 2e6, 1e8, 5e7, 3.0, own=True, variants=(("bfloat16", "a", 2.0),))


def swept(dtype):
    """(name, swept us, bound) of every variant, problem by problem of the sweeps: each shape at
    three sizes and five densities.
    """
    rows, machine = table("masked_conv", "cuda"), machine_of(H200)
    shapes = {r.shape for r in H200.rates if r.op == "masked_conv" and r.dtype == dtype}
    for shape in sorted(shapes):
        mine = [r for r in H200.rates if r.shape == shape and r.dtype == dtype]
        mine = [r for r in mine if r.variant != DENSE]
        taps, channels, outputs, stride = shape
        for pixels in (4096, 25600, 131072):
            work = Work(taps, channels, outputs, 4 if dtype == "float32" else 2, pixels, stride)
            for density in (0.02, 0.1, 0.3, 0.5, 1.0):
                found = []
                for rate in mine:
                    row, area, count = rows[rate.variant], 1, math.ceil(pixels * density)
                    if row.fields["box"]:
                        area, count = 64, math.ceil(pixels / 64 * (1 - (1 - density) ** 2))
                    us = candidate(row, rate, work, area, H200.processors).at(count)
                    least = bound_us(row, work, dtype, count, area, machine)
                    found.append((rate.variant, us, least))
                yield found


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_bound_ranks_the_sweeps(dtype):
    with every_table():
        problems = list(swept(dtype))
    us = np.asarray([each[1] for found in problems for each in found])
    least = np.asarray([each[2] for found in problems for each in found])
    assert len(us) > 4000
    assert spearmanr(us, least).statistic >= 0.97
    # Within a problem the variants are close to one another, so their order is harder.
    several = [np.asarray([each[1:] for each in found]).T for found in problems if len(found) > 3]
    assert np.mean([spearmanr(a, b).statistic for a, b in several]) >= 0.7
    for found in problems:
        chosen = kept([each[2] for each in found])
        best = min(each[1] for each in found)
        near = {i for i, each in enumerate(found) if each[1] <= 1.02 * best}
        assert near <= set(chosen)
    # A shape has 20 variants at most, so that keeps all of them. The best eight hold a good one.
    many = [found for found in problems if len(found) > 8]
    assert len(many) > 200
    assert (
        np.mean([_good(found, kept([each[2] for each in found], 0.0, 8)) for found in many]) > 0.97
    )


def _good(found, places):
    """Whether one of the places is within 2 % of the best."""
    return min(found[i][1] for i in places) <= 1.02 * min(each[1] for each in found)


def test_a_bound_is_memory_or_waves():
    assert bound(FAKE, 5e6, 0.5, 1.0) == 3.0 + 5.0
    assert bound(FAKE, 1e6, 2.5, 4.0) == 3.0 + 12.0
    assert bound(FAKE, 1e6, 2.5, 4.0, streams=True) == 3.0 + 10.0
    assert kept([3.0, 1.0, 2.0], least=2) == [1, 2]
    assert len(kept(list(range(100_000)))) == 100
    assert len(kept(list(range(50)))) == 32
    with pytest.raises(ValueError, match="NaN"):
        kept([float("nan")])


def test_variants_are_as_slow_as_they_were_measured():
    assert FAKE.slower("bfloat16", "a") == FAKE.slower("bfloat16", "b") == 2.0
    assert FAKE.slower("float32", "a") == 1.0
    assert (FAKE.macs("float32"), FAKE.macs("float16")) == (5e7, 1e8)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_data_sheets_by_name(kind, name):
    sheet = published(kind)
    assert sheet is not None
    assert sheet.name == name
    assert published("another GPU") is None


def test_an_h100_gets_its_own_rates(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "folder", lambda: tmp_path)
    facts = {"device_kind": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}
    monkeypatch.setitem(DEVICES, "h100", {**facts, "core_count": 132})
    with every_table(), on("h100"):
        made = table_for("NVIDIA H100 80GB HBM3", "cuda")
        assert made is table_for("NVIDIA H100 80GB HBM3", "cuda")
    assert made.device == "NVIDIA H100 80GB HBM3"
    assert made.measured.startswith("estimated from NVIDIA H200")
    for mine, other in zip(made.rates, H200.rates, strict=True):
        if other.op != "masked_conv" or not other.shape:
            assert mine == other
            continue
        # The same multiprocessors at the same clock; memory at 3.35 TB/s for 4.8.
        assert mine.fill == pytest.approx(other.fill * 4.8 / 3.35, abs=1e-4)
        if other.variant != DENSE:
            assert mine.step == other.step
        else:
            assert other.step * 0.999 <= mine.step <= other.step * 4.8 / 3.35
    dense = {r.shape: r for r in made.rates if (r.variant, r.dtype) == (DENSE, "bfloat16")}
    its = {r.shape: r for r in H200.rates if (r.variant, r.dtype) == (DENSE, "bfloat16")}
    thin, deep = (1, 64, 256, 1), (9, 512, 512, 1)
    assert dense[thin].step / its[thin].step > 1.1 > 1.05 > dense[deep].step / its[deep].step


def test_rates_scale_with_what_they_wait_for():
    its = machine_of(H200)
    same = scale(H200, its, its)
    assert same.rates == H200.rates
    slow = msgspec.structs.replace(
        its, half=its.half / 2, variants=(("bfloat16", "m128n256", 3.0),)
    )
    made = {(r.variant, r.dtype): r for r in scale(H200, its, slow).rates if len(r.shape) == 4}
    old = {(r.variant, r.dtype): r for r in H200.rates if len(r.shape) == 4}
    key = "m128n256", "bfloat16"
    assert made[key].step == pytest.approx(6 * old[key].step, abs=1e-3)
    assert made["m128n256", "float32"] == old["m128n256", "float32"]


def test_unknown_devices_scale_by_their_multiprocessors():
    made = by_ratio("another GPU", 66, machine_of(H200))
    assert made.half == machine_of(H200).half / 2
    assert made.copy == machine_of(H200).copy


def test_calibrations_are_kept_and_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "folder", lambda: tmp_path)
    calibration.calibrated.cache_clear()
    assert calibration.calibrated("fake") is None
    path = calibration.keep(FAKE)
    assert calibration.read("fake") == calibration.calibrated("fake") == FAKE
    good = path.read_text()
    for old, new, why in [
        (good[20:], "", "not a calibration"),
        ("jaxsparse calibration", "another", "format="),
        ('"schema": 1', '"schema": 0', "schema=0; it takes 1"),
        ('"device": "fake"', '"device": "other"', "device='other'; it takes 'fake'"),
        ('"copy": 1000000.0', '"copy": 0.0', "a rate that is not positive"),
    ]:
        path.write_text(good.replace(old, new))
        with pytest.raises(ValueError, match=why):
            calibration.read("fake")
        calibration.calibrated.cache_clear()
        with pytest.warns(RuntimeWarning, match="calibration not used"):
            assert calibration.calibrated("fake") is None
    calibration.calibrated.cache_clear()
