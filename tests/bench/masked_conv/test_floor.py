"""The floor of a masked convolution, and the table of rows against it."""

import numpy as np
import pytest

from jaxsparse.bench.masked_conv.floor import Machine, floor_us, flops, reached
from jaxsparse.bench.masked_conv.floor_table import FloorRow, Measured, to_markdown
from jaxsparse.bench.report.provenance import Provenance
from jaxsparse.testing import ConvCase, cases, make_masks

ODD = [c for c in cases("odd") if c.groups == 1]


def reached_by_tap(case: ConvCase, mask: np.ndarray) -> np.ndarray:
    """The same, pixel by pixel."""
    seen = np.zeros((case.batch, case.height, case.width), bool)
    (top, _), (left, _) = case.geometry.padding
    for b, y, x in zip(*np.nonzero(mask), strict=True):
        for ky in range(case.kernel[0]):
            for kx in range(case.kernel[1]):
                row = y * case.strides[0] + ky * case.dilation[0] - top
                column = x * case.strides[1] + kx * case.dilation[1] - left
                if 0 <= row < case.height and 0 <= column < case.width:
                    seen[b, row, column] = True
    return seen


@pytest.mark.parametrize("case", ODD, ids=lambda c: c.name)
def test_reached(case):
    mask = make_masks("random", case.mask_shape, 0.2)[0]
    np.testing.assert_array_equal(reached(case, mask), reached_by_tap(case, mask))


def test_floor_is_the_larger_of_two_times():
    case = ConvCase("one", 1, 8, 8, 16, 32)
    mask = np.zeros(case.mask_shape, bool)
    mask[0, 3, 3] = True
    assert flops(case, mask) == 2 * 9 * 16 * 32
    moved = 2 * (9 * 16 + 9 * 16 * 32 + 64 * 32)
    slow_memory = Machine(1.0, {"bfloat16": 1e30})
    assert floor_us(case, "bfloat16", mask, slow_memory) == pytest.approx(1e6 * moved)
    slow_products = Machine(1e30, {"bfloat16": 1.0})
    assert floor_us(case, "bfloat16", mask, slow_products) == pytest.approx(1e6 * 9216)
    assert floor_us(case, "float32", mask, Machine(1.0, {"float32": 1e30})) == 2e6 * moved
    with pytest.raises(KeyError):
        floor_us(case, "int8", mask, slow_memory)


def row(**changes) -> FloorRow:
    """A row of round numbers."""
    facts = {
        "case": "a",
        "dtype": "bfloat16",
        "mask": "blobs",
        "asked": 0.25,
        "pixels": 0.25,
        "tiles": 0.5,
        "xla_us": 100.0,
        "torch_us": 80.0,
        "ours_us": 40.0,
        "spread": 0.0,
        "floor_us": 20.0,
        "chosen": "wide",
        "error": 0.001,
        "correct": True,
    }
    return FloorRow(**facts | changes)


def test_rows_say_what_they_reach():
    assert row().dense_us == 80.0
    assert row().of_floor == 0.5
    assert row().cut == pytest.approx(0.8)
    assert row(pixels=1.0).cut is None
    assert "2.50x 2.00x floor 20.0 50% cut 80% wide" in row().line()
    assert row(correct=False).line().endswith("WRONG")


def test_a_later_file_takes_the_place_of_an_earlier_one():
    where = Provenance("now", "abc", "a device", "3.12", {})
    files = [
        Measured(where, (row(), row(case="b", dtype="float32"))),
        Measured(where, (row(ours_us=50.0), row(case="b", mask="full", asked=1.0, pixels=1.0))),
    ]
    text = to_markdown(files)
    assert text.count("## ") == 3
    assert "## b, TF32" in text
    assert "XLA dense 100.0 us, torch 80.0 us. Largest error 1.0e-03." in text
    assert "| blobs | 0.25 | 0.50 | 50.0 | 2.00x | 40% | 67% | wide |" in text
    assert "| blobs | 0.25 | 0.50 | 40.0 | 2.50x" in text  # of the other case
    assert "| full | 1.00 | 0.50 | 40.0 | 2.50x | 50% |  | wide |" in text


def test_densities_share_a_line():
    where = Provenance("now", "abc", "a device", "3.12", {})
    rows = row(asked=0.5, pixels=0.5, ours_us=80.0, chosen="box", correct=False), row()
    text = to_markdown([Measured(where, rows)])
    assert "| blobs | 0.25 / 0.50 | 0.50 / 0.50 | 40.0 / 80.0 wrong | 2.50x / 1.25x |" in text
    assert text.rstrip().endswith("| wide, box |")
