"""Dense through XLA as an executor among the others: a plan must never lose to what it replaces."""

import numpy as np

from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.strips import workers

_CORE_OPS_PER_US = 4.0e4
_CUDA_OPS_PER_US = {"highest": 4.0e7, "tf32": 2.5e8, "half": 4.5e8}
_BYTES_PER_US = {"cpu": 1.0e4, "cuda": 3.0e6}  # a core; a device
_COLUMN_US = 0.02  # cuDNN's float32 on few positions: its time grows with the depth of the sums
_LAUNCH = {"cpu": 4.0, "cuda": 5.0}


def _operations_per_us(problem: Problem) -> float:
    if problem.platform == "cpu":
        return _CORE_OPS_PER_US * min(workers(), 16)
    if problem.dtype != "float32":
        return _CUDA_OPS_PER_US["half"]
    return _CUDA_OPS_PER_US["highest" if problem.precision == "highest" else "tf32"]


def _cost(problem: Problem) -> float:
    pattern = problem.pattern
    cores = min(workers(), 16) if problem.platform == "cpu" else 1
    operations = 2.0 * problem.positions * pattern.size
    size = 4.0 if problem.dtype == "float32" else 2.0
    elements = pattern.size + np.prod(problem.x_shape) + problem.positions * pattern.n_out
    moving = size * elements / (_BYTES_PER_US[problem.platform] * cores)
    work = operations / _operations_per_us(problem)
    if problem.kind == "conv" and problem.platform == "cuda" and problem.precision == "highest":
        work = max(work, _COLUMN_US * pattern.n_in)
    return float(max(work, moving)) + _LAUNCH[problem.platform]


def _pack(problem: Problem, candidate: object) -> Packed:
    raise TypeError("the dense executor packs nothing: it is XLA's own product")


DENSE_CPU = Executor("dense", "cpu", lambda problem: None, _cost, _pack)
DENSE_CUDA = Executor("dense", "cuda", lambda problem: None, _cost, _pack)
