"""JAXSPARSE_CPU_ISA: each instruction set of this machine gives right results, and a name that it
lacks is refused.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.problems import OPS

from jaxsparse.ffi.register import module

FUZZ = Path(__file__).parent / "fuzz/run.py"
NATIVE, _ = module("cpu")
SETS = {"avx512": ["avx512", "avx2", "plain"], "avx2": ["avx2", "plain"], "neon": ["neon", "plain"]}
HERE = SETS.get(NATIVE.instruction_set(), ["plain"]) if NATIVE else []

pytestmark = pytest.mark.skipif(NATIVE is None, reason="no CPU module")


def run(name, *command):
    env = os.environ | {"JAXSPARSE_CPU_ISA": name, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=500
    )


@pytest.mark.parametrize("name", HERE[1:])
def test_the_operations_are_right(name):
    """The best one is what all other tests run."""
    done = run(name, str(FUZZ), "--count", "2", "--seed", "4", "--seconds", "300", "--draws", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * len(OPS)} problems, " in done.stdout


def test_info_says_which_one_is_taken():
    done = run("plain", "-m", "jaxsparse.info", "--json")
    assert '"instruction_set": "plain"' in done.stdout, done.stderr


def test_a_name_that_this_machine_lacks_is_refused():
    done = run("sse9", "-c", "import jaxsparse")
    names = ", ".join(HERE)
    assert f"ValueError: JAXSPARSE_CPU_ISA=sse9; this machine takes one of {names}" in done.stderr
