"""The encoder on twelve distributions of lengths."""

import importlib

import numpy as np
from examples.test_demos import check_picture


def test_forms_agree_on_two_distributions(examples, tmp_path):
    demo = importlib.import_module("ragged_distributions")
    found = demo.main(["--quick", "--out", str(tmp_path)])
    assert [row.name for row in found] == ["CoLA", "MultiNLI pairs"]
    for row in found:
        assert row.error < max(demo.TF32_TOLERANCE, demo.TOLERANCE["float32"])
        assert set(row.times) == set(row.memory) == set(demo.FORMS)
    check_picture(tmp_path / "ragged_distributions.png")


def test_lengths_have_the_mean_that_is_named(examples):
    demo = importlib.import_module("ragged_distributions")
    assert len({each.name for each in demo.DISTRIBUTIONS}) == 12
    for each in demo.DISTRIBUTIONS:
        drawn = each.draw(4096, 0)
        assert drawn.min() >= 3
        assert drawn.max() <= demo.LONGEST
        np.testing.assert_array_equal(drawn, each.draw(4096, 0))
        if each.words < 50:  # longer ones are cut
            assert abs(drawn.mean() - 2 - 1.3 * each.words) < 0.06 * 1.3 * each.words, each.name
