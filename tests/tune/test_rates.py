"""Rates fitted to measured times: what was put in comes out, and the choice follows."""

import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.select.costs import EVERY, cheapest
from jaxsparse.select.masked_conv.cost import Work, candidate, dense, features, listed, terms
from jaxsparse.select.select import choose
from jaxsparse.select.table import DENSE, Rate, shipped
from jaxsparse.select.variants import Variant
from jaxsparse.testing import case
from jaxsparse.tune import rates
from jaxsparse.tune.sweep import Sample, problem_of

PROCESSORS = 132
SIZES = {"tile_m": 128, "tile_n": 128, "cluster": 1, "split_k": 1}
ROWS = {
    "narrow": Variant("masked_conv", "cuda", "narrow", 1, SIZES | {"stream_k": 0, "box": 0}),
    "streams": Variant("masked_conv", "cuda", "streams", 2, SIZES | {"stream_k": 1, "box": 0}),
    "box": Variant("masked_conv", "cuda", "box", 3, SIZES | {"stream_k": 0, "box": 1}),
}
WORK = Work(9, 256, 256, 2, 25600, 1)
CASE = case("b16_40x40x256")


def rate(variant: str, start: float, step: float, row_step: float, fill: float) -> Rate:
    """A rate of the shape of CASE."""
    tail = 0.0
    shape = WORK.shape
    return Rate(
        "masked_conv", "bfloat16", variant, start, step, tail, row_step, fill=fill, shape=shape
    )


TRUE = (
    rate("narrow", 6.0, 0.4, 0.05, 0.2),
    rate("streams", 18.0, 0.0, 0.6, 0.1),
    rate("box", 5.0, 0.3, 0.1, 0.15),
    Rate("masked_conv", "bfloat16", DENSE, 7.0, 2.5, 0.0, shape=WORK.shape),
)


def samples(variant: str, place: int, exact: Rate) -> list[Sample]:
    """What a machine of these rates measures, over masks of ten densities."""
    found = []
    for seed, share in enumerate(np.linspace(0.05, 1.0, 10)):
        counts = (int(25600 * share), int(400 * share))
        if variant == DENSE:
            us = dense(exact, WORK).at()
        else:
            area = (1, 64)[variant == "box"]
            tiles = None if place >= 0 else (25600, 400)[area > 1]
            row = ROWS[variant]
            at = max(place, 0)
            us = candidate(row, exact, WORK, area, PROCESSORS, place=at, tiles=tiles).at(*counts)
        found.append(
            Sample(
                case=CASE.name,
                dtype="bfloat16",
                mask="blobs",
                seed=seed,
                taps=9,
                channels=256,
                outputs=256,
                stride=1,
                counts=counts,
                tiles=(25600, 400),
                variant=variant,
                list=place,
                us=us,
            )
        )
    return found


@pytest.fixture
def rows(monkeypatch):
    """Three variants of a machine that is not there."""
    monkeypatch.setattr(rates, "table", lambda op, platform: ROWS)


def measured() -> list[Sample]:
    """All of them."""
    places = {"narrow": (0, EVERY), "streams": (0,), "box": (1,), DENSE: (0,)}
    return [s for r in TRUE for place in places[r.variant] for s in samples(r.variant, place, r)]


def test_terms_times_rates_are_the_cost():
    for row in ROWS.values():
        area = 64 if row.fields["box"] else 1
        exact = next(r for r in TRUE if r.variant == row.name)
        for count in (0, 1, 131, 264, 400):
            at = candidate(row, exact, WORK, area, PROCESSORS, place=0).at(count)
            one, step, tail, row_step, fill = features(row, WORK, area, PROCESSORS, count, 0)
            even = exact.row_step + (exact.step if row.fields["stream_k"] else 0.0)
            linear = one * exact.start + step * exact.step + tail * exact.tail
            took = linear + row_step * even + fill * exact.fill + listed()
            assert took == pytest.approx(at)


def test_a_base_leaves_nothing_to_fill():
    for fills, zeros in ((True, 13.1072 - 100 * 0.000512), (False, 0.0)):
        work = WORK._replace(fills=fills)
        assert features(ROWS["narrow"], work, 1, PROCESSORS, 100, 0)[-1] == pytest.approx(zeros)
    with_base = msgspec.structs.replace(samples("narrow", 0, TRUE[0])[0], fills=False)
    assert not rates.work_of(with_base).fills
    assert len(rates.entries([*measured(), with_base])) == 1


@pytest.mark.skipif(
    not any(v.platform == "cuda" for v in js.variants("masked_conv")),
    reason="no cuda variants in this build",
)
def test_variants_of_one_call_were_measured_on_one_shape():
    """A rate of another shape says nothing beside those of the nearest."""

    def known(shape):
        return tuple(msgspec.structs.replace(r, variant=n, shape=shape) for n, r in of[shape])

    of = {
        WORK.shape: (("m128n256", TRUE[0]), ("m128n256c2", TRUE[0])),
        (9, 64, 64, 1): (("m128n256", TRUE[0]), ("box64m", TRUE[0]), ("m128n256c2", TRUE[0])),
    }
    far = msgspec.structs.replace(TRUE[0], variant="m128n128", shape=())
    table = js.TuningTable(
        device="x",
        measured="",
        entries=(),
        processors=PROCESSORS,
        rates=(*known(WORK.shape), *known((9, 64, 64, 1)), far),
    )
    found = rates.candidates_of(CASE, "bfloat16", table)
    assert {c.variant for c in found} <= {"m128n256", "m128n128"}
    small = rates.candidates_of(case("b1_512x512x64"), "bfloat16", table)
    assert "box64m" in {c.variant for c in small}


@pytest.mark.skipif(
    not any(v.platform == "cuda" for v in js.variants("masked_conv")),
    reason="no cuda variants in this build",
)
@pytest.mark.parametrize(("name", "alone"), [("b1_40x40x256", True), ("b16_40x40x256", False)])
def test_the_shipped_table_leaves_one_small_image_to_dense(name, alone):
    with js.config(tuning=shipped()["NVIDIA H200"]):
        found = choose("masked_conv", problem_of(case(name), "bfloat16"))
    assert ([r.variant for r in found.rungs] == [DENSE]) == alone
    assert (not found.candidates) == alone


def test_a_wave_holds_what_all_processors_hold():
    found = terms(ROWS["narrow"], WORK, 1, PROCESSORS)
    assert found == pytest.approx((36, 132 * 128 / 2, 13.1072, 0.000512))
    every = candidate(ROWS["narrow"], TRUE[0], WORK, 1, PROCESSORS, tiles=25600)
    assert every.list == EVERY
    assert every.at(5) == pytest.approx(6.0 + 36 * (0.4 * 4 + 0.05 * 25600 / 8448))


def test_a_full_mask_needs_no_list():
    listed = candidate(ROWS["narrow"], TRUE[0], WORK, 1, PROCESSORS)
    every = candidate(ROWS["narrow"], TRUE[0], WORK, 1, PROCESSORS, tiles=25600)
    assert listed.at(25600) - every.at(25600) == pytest.approx(0.3)
    assert cheapest((listed, every), 25600) is every
    assert cheapest((listed, every), 25000) is listed


def test_fit_says_what_was_measured(rows):
    found = {r.variant: r for r in rates.fit(measured(), PROCESSORS)}
    assert found[DENSE].step == pytest.approx(2.5, rel=0.05)
    for exact in TRUE[:3]:
        got, row = found[exact.variant], ROWS[exact.variant]
        assert got.shape == WORK.shape
        # One image size does not tell start, fill and what is even apart; their sum it does.
        assert got.step == pytest.approx(exact.step, rel=0.02, abs=0.01)
        area = 64 if exact.variant == "box" else 1
        for count in (20, 200, 400):
            a, b = (candidate(row, r, WORK, area, PROCESSORS).at(count) for r in (got, exact))
            assert a == pytest.approx(b, rel=0.02)


def test_entries_hold_gathered_variants_and_dense(rows):
    (entry,) = rates.entries(measured())
    assert entry.features["pixels"] == 25600
    names = {r.variant for r in entry.ladder}
    assert names <= {"narrow", "streams", DENSE}
    assert entry.ladder[0].variant == "narrow"
    assert entry.ladder[-1].up_to == 1.0


def test_regret_is_of_what_the_rates_choose(rows, monkeypatch):
    row = ROWS["narrow"]
    good = candidate(row, TRUE[0], WORK, 1, PROCESSORS)
    box = candidate(ROWS["box"], TRUE[2], WORK, 64, PROCESSORS, place=1)
    monkeypatch.setattr(rates, "candidates_of", lambda case, dtype, tuning: (good, box))
    table = js.TuningTable(device="x", measured="", entries=(), rates=TRUE)
    found = rates.judge(measured(), table, [CASE])
    assert len(found) == 10
    assert all(r.ratio >= 1.0 for r in found)
    assert {r.chosen for r in found} <= {"narrow", "box"}
    sparse = min(found, key=lambda r: r.density)
    assert sparse.us == min(good.at(1280, 20), box.at(1280, 20))


def test_the_nearest_shape_serves():
    wide = rate("narrow", 1.0, 1.0, 0.0, 0.0)
    small = msgspec.structs.replace(wide, start=2.0, shape=(1, 64, 64, 1))
    every = msgspec.structs.replace(wide, start=3.0, shape=(), variant="other")
    table = js.TuningTable(device="x", measured="", entries=(), rates=(wide, small, every))
    near = table.rates_of("masked_conv", "bfloat16", (9, 128, 128, 1))
    assert near == {"narrow": wide, "other": every}
    assert table.rates_of("masked_conv", "bfloat16", (1, 64, 128, 1))["narrow"] == small
    assert table.nearest_shape("masked_conv", "bfloat16", (1, 64, 128, 1)) == (1, 64, 64, 1)
    assert table.nearest_shape("masked_conv", "float16", (1, 64, 128, 1)) == ()
    assert js.TuningTable.from_json(table.to_json()) == table
    assert all(len(line) < 400 for line in table.to_json().decode().splitlines())
