"""The CPU's executor of products of one row: an output is the dot product of its kept weights with
their inputs (docs/packed.md, executor 1).
"""

import numpy as np

from jaxsparse.core.contract import CpuExecutor
from jaxsparse.core.device import workers
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.parts import share_out
from jaxsparse.select.table import Measured

MOST_INPUTS = 1 << 16  # an input is named by 16 bits
_ALIGN = 64
# Nanoseconds of one worker: `entry` an entry, `output` an output. Microseconds: `call` a call,
# `part` the least work that is worth another worker.
_MEASURED = Measured("pruned_dots", "cpu")


def reason_against(problem: Problem) -> str | None:
    """Why it cannot run a problem, or None."""
    if problem.geometry is not None:
        return "it runs products, not windows"
    if problem.x_shape[0] != 1:
        return f"it takes one row of x, not {problem.x_shape[0]}"
    if problem.pattern.n_in > MOST_INPUTS:
        return f"it takes up to {MOST_INPUTS} inputs, not {problem.pattern.n_in}"
    if problem.pattern.n_out == 0:
        return "the result is empty"
    return None


def _work(problem: Problem) -> float:
    """Microseconds of one worker."""
    pattern = problem.pattern
    return 1e-3 * (pattern.entries * _MEASURED("entry") + pattern.n_out * _MEASURED("output"))


def _parts(problem: Problem) -> int:
    """How many runs of outputs there are; each is worth another worker."""
    most = min(4 * workers(), -(-problem.pattern.n_out // 16)) if workers() > 1 else 1
    return int(max(min(_work(problem) // _MEASURED("part"), most), 1))


def cost(problem: Problem) -> float:
    """Estimated microseconds."""
    return _work(problem) / min(_parts(problem), workers()) + _MEASURED("call")


def pack(problem: Problem, candidate: object = None) -> Packed:
    """The operands: the pattern as it is, and runs of outputs of equal work."""
    pattern, parts = problem.pattern, _parts(problem)
    bounds = share_out(pattern.lengths, parts)
    converted = pattern.n_in if problem.dtype != "float32" else 0
    return Packed(
        executor=CpuExecutor.DOTS,
        starts=np.stack([pattern.indptr[:-1], pattern.indptr[1:]]),
        indices=pattern.indices.astype(np.uint16),
        rows=np.concatenate([np.arange(pattern.n_out, dtype=np.int32), bounds]),
        block=max(pattern.n_in, 1),
        parts=parts,
        scratch=4 * (pattern.n_out + converted) + 3 * _ALIGN,
    )


DOTS = Executor("dots", "cpu", reason_against, cost, pack)
