"""`make test-gpu`'s table."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "cmake/report_tests.py"
PASSED = '<testcase classname="a" name="one"/>'
SKIPPED = '<testcase classname="a" name="n"><skipped message="no GPU"/></testcase>'
WHOLE_FILE = """<testcase classname="" name="c"><skipped message="collection skipped">
('c.py', 9, "Skipped: no GPU")</skipped></testcase>"""
FAILED = '<testcase classname="b" name="two"><failure message="x"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "lines", "code"),
    [
        (PASSED + SKIPPED * 2, ["1  passed", "0  failed", "2  skipped: no GPU"], 0),
        (PASSED + FAILED, ["1  passed", "1  failed", "failed: b::two"], 1),
        (PASSED + WHOLE_FILE, ["1  passed", "0  failed", "1  skipped: no GPU"], 0),
        (SKIPPED, ["0  passed", "0  failed", "1  skipped: no GPU"], 1),
    ],
)
def test_one_table(tmp_path, cases, lines, code):
    file = tmp_path / "r.xml"
    file.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    command = [sys.executable, str(TOOL), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [line.strip() for line in done.stdout.splitlines()] == lines
    assert done.returncode == code


@pytest.mark.parametrize(
    ("first", "second", "but", "code"),
    [
        (PASSED + SKIPPED, PASSED + SKIPPED, None, 1),
        (PASSED + SKIPPED, PASSED + SKIPPED, "GPU", 0),
        (PASSED + SKIPPED, PASSED + SKIPPED, "Windows", 1),
        (PASSED + SKIPPED, PASSED.replace("one", "n"), None, 0),
        (PASSED + SKIPPED, PASSED, None, 0),  # not drawn for the second run
    ],
)
def test_a_test_that_every_run_skips_fails_them(tmp_path, first, second, but, code):
    files = []
    for i, cases in enumerate((first, second)):
        files.append(tmp_path / f"{i}.xml")
        files[-1].write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    command = [sys.executable, str(TOOL), *map(str, files), *(["--but", but] if but else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code
    assert ("skipped in every run: a::n: no GPU" in done.stdout) == bool(code)
