"""The stand-in's runtime refuses what NVIDIA's runtime refuses, and accepts the rest."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "cmake"))
from machine import is_toolkit, machine_roots  # noqa: E402

HEADERS = [root / "include" for root in machine_roots() if is_toolkit(root)]


@pytest.mark.skipif(
    not HEADERS or shutil.which("g++") is None,
    reason="no CUDA headers, or no g++",
)
def test_the_runtime_refuses_what_a_device_does(tmp_path):
    sources = [s for s in (HERE / "driver").glob("*.cc") if s.stem != "call"]
    command = ["g++", "-std=c++17", "-O0", f"-I{HERE}", "-isystem", str(HEADERS[0])]
    program = tmp_path / "refusals"
    command += [*map(str, sources), str(HERE / "refusals.cc"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
