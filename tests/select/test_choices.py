"""Choices stay what they are: those of some two thousand problems, as `choices.json` holds them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from choice_answers import STORED, answers, packed, unpacked
from choice_problems import problems

from jaxsparse.select.choice import choosers


def test_what_is_stored_can_be_read():
    text = STORED.read_text()
    assert len(text) <= 100_000
    stored = unpacked(text)
    assert packed(stored) == text
    assert sum(map(len, stored.values())) == len(problems())


def test_every_op_that_chooses_is_asked():
    """But `masked_dense` and `kept_matmul`, which are other ops under their own names."""
    assert {asked.op for asked in problems()} | {"masked_dense", "kept_matmul"} == {*choosers()}


@pytest.mark.slow
def test_choices_are_those_that_are_stored():
    """After a change that is meant to change them, run `tests/select/choice_answers.py`."""
    stored, found = unpacked(STORED.read_text()), answers()
    assert found.keys() == stored.keys()
    for op, lines in stored.items():
        places = [i for i, (a, b) in enumerate(zip(lines, found[op], strict=True)) if a != b]
        asked = [each for each in problems() if each.op == op]
        told = [f"{asked[i]}: {lines[i]} is now {found[op][i]}" for i in places[:5]]
        assert not told, "\n".join(told)
