"""Equal bits: of two processes with different numbers of threads, at any place in the batch, and
from every implementation, as docs/numerics.md promises for each operation.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numerics.cases import CASES
from numerics.promises import promises

import jaxsparse as js
from jaxsparse.ffi.register import module

pytestmark = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
PROGRAM = Path(__file__).with_name("digests.py")
#: Of XLA's pool, from which the kernels take their workers.
THREADS = (1, 5)
FIXED = [case for case in CASES if promises()[case.op].device]


def started(threads):
    """What the program prints with so many threads."""
    path = os.pathsep.join([str(Path(js.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    given = {"NPROC": str(threads), "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    env = {**os.environ, **given}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runs():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(started, THREADS))


def test_any_number_of_threads_gives_the_same_bits(runs):
    """Of results and gradients, but for those that the page names."""
    one, many = runs
    wrong = [
        (str(case), name)
        for case in CASES
        for name, bits in one[str(case)]["bits"].items()
        if bits != many[str(case)]["bits"][name] and name not in promises()[case.op].threads
    ]
    assert not wrong
    assert sum(len(found["bits"]) for found in one.values()) > 2 * len(CASES)


def test_a_second_call_gives_the_same_bits(runs):
    assert not [(name, i) for i, run in enumerate(runs) for name in run if not run[name]["again"]]


def test_a_row_has_the_same_bits_at_every_place_of_the_batch(runs):
    found = {str(case): runs[1][str(case)].get("moved") for case in CASES}
    assert not {name: moved for name, moved in found.items() if moved}
    placed = {case.op for case in CASES if found[str(case)] is not None}
    assert placed == {op for op, promise in promises().items() if promise.place}


@pytest.mark.parametrize("case", FIXED, ids=str)
def test_every_implementation_gives_the_same_bits(case):
    operands = case.operands("float32")
    own, plain = (
        case.results(deterministic=True, implementation=name)(*operands)
        for name in (None, "reference")
    )
    for a, b in zip(own, plain, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert jax.tree.leaves(own)
