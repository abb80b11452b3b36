"""The bits of every case: a program that the tests start with different numbers of threads.

Prints {case: {"bits": array -> digest, "again": whether a second call has the same, "moved": the
arrays of which an entry's bits depend on its place in the batch}}.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from numerics.case import Arrays, Case
from numerics.cases import CASES
from numerics.promises import promises


def bits(value: Any) -> str:
    """A digest, which the sign of a zero changes."""
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


def named(found: Any) -> Arrays:
    """Results by number, and gradients by operand."""
    results, gradients = found
    return {str(i): v for i, v in enumerate(results)} | gradients


def turned(case: Case, arrays: Arrays) -> Arrays:
    """The arrays with the rows of the case in reverse order; results have them first."""
    axes = {str(i): 0 for i in range(9)} | case.rows
    return {n: np.flip(np.asarray(v), axes[n]) if n in axes else v for n, v in arrays.items()}


def report(case: Case) -> dict[str, Any]:
    promise = promises()[case.op]
    run = case.with_gradient(deterministic=promise.repeat == "deterministic")
    operands = case.operands("float32")
    first = {n: bits(v) for n, v in named(run(*operands)).items()}
    again = {n: bits(v) for n, v in named(run(*operands)).items()}
    found = {"bits": first, "again": first == again}
    if not case.rows:
        return found
    there = turned(case, named(run(*(turned(case, arrays) for arrays in operands))))
    own = [n for n in there if n.isdigit() or n in case.rows]
    return found | {"moved": [n for n in own if bits(there[n]) != first[n]]}


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    json.dump({str(case): report(case) for case in CASES}, sys.stdout)
