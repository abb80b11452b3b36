"""What is read off the output of compute-sanitizer."""

import pytest

from fuzz.gpu_check import word_of

RAN = "seed 5: 2 problems, 40 cases, 0 problems wrong, 3 s\n"
LOST = "========= Internal Sanitizer Error: Detected a failure to track a kernel launch.\n"
CLEAN = "========= ERROR SUMMARY: 0 errors"


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        (f"========= COMPUTE-SANITIZER\n{RAN}{CLEAN}", 0, "clean"),
        (f"{RAN}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)", 0, "clean"),
        (f"{RAN}========= ERROR SUMMARY: 8 errors", 9, "8 faults"),
        (f"{RAN}========= RACECHECK SUMMARY: 3 hazards displayed (3 errors)", 9, "3 faults"),
        (RAN.replace("0 problems wrong", "1 problems wrong") + CLEAN, 1, "problems wrong"),
        (CLEAN, 1, "died"),
        ("========= COMPUTE-SANITIZER\n", -11, ""),
        (f"{RAN}{LOST}========= RACECHECK SUMMARY: 1 hazard displayed (1 error)", 9, ""),
    ],
)
def test_word(text, code, word):
    assert word_of(text, code) == word
