"""The command line's frame; its commands are tested beside what they run."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app


def test_help_names_the_commands():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for command in ("info", "bench", "tune"):
        assert command in done.output


@pytest.mark.parametrize("command", ["info", "bench", "tune"])
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
    assert "versions:" in done.stdout
