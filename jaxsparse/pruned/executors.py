"""The executors of each platform, the choice among them, and their packed operands, kept per
problem.
"""

import functools
import hashlib
from typing import Any

import numpy as np

from jaxsparse.pruned.dense import DENSE_CPU, DENSE_CUDA
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors_conv import CONV_EXECUTORS
from jaxsparse.pruned.executors_cuda import CUDA_EXECUTORS
from jaxsparse.pruned.strips import STRIPS
from jaxsparse.select.variants import also_runs

EXECUTORS: dict[str, tuple[Executor, ...]] = {
    "cpu": (STRIPS, DENSE_CPU),
    "cuda": (*CUDA_EXECUTORS, *CONV_EXECUTORS, DENSE_CUDA),
}

for _op in ("pruned_matmul", "pruned_conv"):
    for _platform, _executors in EXECUTORS.items():
        also_runs(_op, _platform, *(e.name for e in _executors))

OPERAND = (
    "the values are an operand, and this executor builds them in: "
    "close over the weight in a jitted function"
)


def executor(platform: str, name: str) -> Executor:
    """The executor of that name.

    Raises:
        ValueError: when the platform has none of it.
    """
    for found in EXECUTORS[platform]:
        if found.name == name:
            return found
    names = ", ".join(e.name for e in EXECUTORS[platform])
    raise ValueError(f"executor {name!r} is none of {platform}'s: {names}")


def against(problem: Problem, constant: bool = True) -> dict[str, str]:
    """Name -> why that executor cannot run the problem. `constant`: the values are known."""
    reasons: dict[str, str] = {}
    for found in EXECUTORS[problem.platform]:
        why = found.reason_against(problem)
        if why is None and found.needs_values and not constant:
            why = OPERAND
        if why is not None:
            reasons[found.name] = why
    return reasons


@functools.lru_cache(maxsize=1024)
def ranked(problem: Problem, constant: bool = True) -> tuple[str, ...]:
    """The executors that can run the problem: by estimated cost, those that never won last."""
    bad = against(problem, constant)
    able = [e for e in EXECUTORS[problem.platform] if e.name not in bad]
    return tuple(e.name for e in sorted(able, key=lambda e: (not e.won(problem), e.cost(problem))))


def packed(problem: Problem, name: str, candidate: Any, values: np.ndarray | None) -> Packed:
    """The packed operands of executor `name`, built once.

    Args:
        problem: the call.
        name: of an executor that can run it.
        candidate: one of its tunables, None for its own choice.
        values: the kept values where they are known.
    """
    if not executor(problem.platform, name).needs_values:
        return _packed(problem, name, candidate, None)
    if values is None:
        raise ValueError(f"{name}: {OPERAND}")
    return _packed(problem, name, candidate, _Values(values))


class _Values:
    """Values as a key: by content."""

    def __init__(self, values: np.ndarray):
        self.values = np.ascontiguousarray(values, np.float32)
        self.digest = hashlib.sha256(self.values.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Values) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@functools.lru_cache(maxsize=256)
def _packed(problem: Problem, name: str, candidate: Any, values: _Values | None) -> Packed:
    pack = executor(problem.platform, name).pack
    return pack(problem, candidate) if values is None else pack(problem, candidate, values.values)
