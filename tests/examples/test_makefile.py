"""`make`: the wheel's progress is seen, a build that fails fails the command, and the environment
follows what it was made for. The interpreter is a script that records what it was asked.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/bash
echo "$*" >> {log}
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"pip wheel"*)
    echo "  -- Configuring done"
    echo "  command line of a compiler"
    echo "  [1/2] Building CXX object one.o"
    if [ -e {broken} ]; then
      echo "  two.cc:3:1: error: expected a kernel"
      echo "  the end of the log"
      exit 3
    fi
    touch build/venv/wheel/jaxsparse-1-py3-none-any.whl ;;
esac
"""

# What a user may set. `make test VENV=...` hands its own settings down; these tests ignore them.
SETTINGS = re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def project(tmp_path):
    """A checkout without git: the Makefile, one source, and the interpreter."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "jaxsparse").mkdir()
    (tmp_path / "jaxsparse" / "one.py").write_text("1\n")
    python = tmp_path / "python"
    python.write_text(PYTHON.format(log=tmp_path / "log", broken=tmp_path / "broken"))
    python.chmod(0o755)
    return tmp_path


def make(project, *settings):
    """Runs the default environment's target; what it printed and what the interpreter was asked."""
    (project / "log").write_text("")
    prefixes = ("MAKE", "JAXSPARSE")
    environment = {
        k: v for k, v in os.environ.items() if k not in SETTINGS and not k.startswith(prefixes)
    }
    done = subprocess.run(
        ["make", f"PYTHON={project / 'python'}", *settings, "build/venv/installed"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done, (project / "log").read_text()


def test_a_wheel_that_fails(project):
    (project / "broken").touch()
    done, _ = make(project)
    assert done.returncode != 0
    assert not (project / "build" / "venv" / "installed").exists()
    streamed, _, log = done.stdout.partition("error: expected a kernel")
    assert "building the wheel" in streamed
    assert "-- Configuring done" in streamed
    assert "[1/2] Building" in streamed
    assert "command line of a compiler" not in streamed
    assert "the end of the log" in log
    assert "the wheel was not built" in done.stderr


def test_it_ends_with_the_info_screen(project):
    done, asked = make(project)
    assert done.returncode == 0, done.stderr
    assert asked.splitlines()[-1] == "-m jaxsparse.info"


def test_nothing_changed_and_nothing_is_made(project):
    make(project)
    done, asked = make(project)
    assert done.returncode == 0
    assert asked == ""


def test_an_edited_source_is_built(project):
    make(project)
    newer = (project / "build" / "venv" / "installed").stat().st_mtime + 10
    os.utime(project / "jaxsparse" / "one.py", (newer, newer))
    _, asked = make(project)
    assert "pip wheel" in asked
    assert "-m venv" not in asked


@pytest.mark.parametrize("setting", ["JAX=jax==0.10.2", "JAXSPARSE_CUDA=ON", "JAXSPARSE_CUDA=OFF"])
def test_another_setting_makes_the_environment_anew(project, setting):
    make(project)
    (project / "build" / "venv" / "left").touch()
    _, asked = make(project, setting)
    assert "-m venv" in asked
    assert "pip wheel" in asked
    assert not (project / "build" / "venv" / "left").exists()


def test_a_wheel_that_is_there_is_not_built(project):
    wheel = project / "jaxsparse-2-py3-none-any.whl"
    wheel.touch()
    done, asked = make(project, f"WHEEL={wheel}")
    assert done.returncode == 0, done.stderr
    assert "pip wheel" not in asked
    assert "wheel/jaxsparse-2-py3-none-any.whl" in asked
