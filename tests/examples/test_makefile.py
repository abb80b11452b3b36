"""`make`'s wheel: one sees its progress, and a build that fails fails the command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = """#!/bin/bash
case "$*" in
  *"pip wheel"*)
    echo "  -- Configuring done"
    echo "  command line of a compiler"
    echo "  [1/2] Building CXX object one.o"
    echo "  two.cc:3:1: error: expected a kernel"
    echo "  the end of the log"
    exit 3 ;;
esac
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_wheel_that_fails(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "build" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP)
    python.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    command = ["make", f"PYTHON={sys.executable}", "build/venv/installed"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert not (tmp_path / "build" / "venv" / "installed").exists()
    streamed, _, log = done.stdout.partition("error: expected a kernel")
    assert "with nvcc the CUDA kernels too: JAXSPARSE_CUDA=OFF" in streamed
    assert "-- Configuring done" in streamed
    assert "[1/2] Building" in streamed
    assert "command line of a compiler" not in streamed
    assert "the end of the log" in log
    assert "the wheel was not built" in done.stderr
