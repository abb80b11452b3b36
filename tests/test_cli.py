"""The command line's frame; its commands are tested beside what they run."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.version import __version__


def test_help_names_the_commands():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for command in ("info", "bench", "papers", "tune"):
        assert command in done.output


@pytest.mark.parametrize("command", ["info", "bench", "papers", "tune"])
def test_every_command_has_help(command):
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "--" in done.output


def test_info():
    done = CliRunner().invoke(app, ["info", "--json"])
    assert done.exit_code == 0
    assert "masked_conv" in json.loads(done.output)["ops"]


def test_python_dash_m():
    command = [sys.executable, "-m", "jaxsparse", "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "masked_conv" in done.stdout


def test_version():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.output.strip() == f"jaxsparse {__version__}"


@pytest.mark.parametrize("command", [[], ["bench"]])
def test_help_lines_are_whole(command):
    done = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert done.exit_code == 0
    assert "..." not in done.output.replace("[ARGS]...", "")


def test_files_in_missing_folders(tmp_path):
    file = tmp_path / "no" / "such" / "result.json"
    arguments = ["--quick", "--no-rivals", "--samples=1", f"--json={file}"]
    done = CliRunner().invoke(app, ["bench", "masked_matmul", *arguments])
    assert done.exit_code == 0, done.output
    assert json.loads(file.read_text())["rows"]
    text = " ".join(done.output.split())
    assert "times faster" in text
    assert "noisy" in text
    assert "Measured on" in text


def test_a_folder_that_cannot_be_made_is_told_before_measuring(tmp_path):
    (tmp_path / "file").write_text("")
    arguments = ["--quick", f"--json={tmp_path}/file/result.json"]
    done = CliRunner().invoke(app, ["bench", "masked_conv", *arguments])
    assert done.exit_code == 2
    assert "cannot be written" in " ".join(done.output.split())
