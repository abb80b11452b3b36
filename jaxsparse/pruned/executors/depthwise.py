"""The CPU's executor of depthwise kernels: channels are the lanes of a vector, and images are read
in their own layout (docs/packed.md, executor 2).
"""

import numpy as np

from jaxsparse.core.contract import CpuExecutor
from jaxsparse.core.device import workers
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.select.table import Measured

LANES = 16
_ALIGN = 64
_ITEMS = 4  # of each worker
# Nanoseconds of one worker, for each vector of 16 channels: `tap` a multiply-add, `pixel` a result.
# Microseconds: `call` a call, `alone` the work below which one worker does all of it.
_MEASURED = Measured("pruned_depthwise", "cpu")


def _kept(problem: Problem) -> np.ndarray:
    """int[taps]: the taps that some channel keeps."""
    return np.unique(problem.pattern.indices % problem.pattern.taps)


def reason_against(problem: Problem) -> str | None:
    """Why it cannot run a problem, or None."""
    pattern, geo = problem.pattern, problem.geometry
    if geo is None or pattern.window is None:
        return "it runs depthwise convolutions, not products"
    if not pattern.groups == pattern.channels == pattern.n_out:
        return (
            f"it needs as many groups and outputs as channels: {pattern.channels} channels, "
            f"{pattern.groups} groups, {pattern.n_out} outputs"
        )
    if problem.channels_first:
        return "it takes images with their channels last (NHWC)"
    if geo.lhs_dilation != (1, 1):
        return "it does not run gradients of strided convolutions (lhs_dilation other than 1)"
    if 0 in (*problem.out_hw, pattern.n_out):
        return "the result is empty"
    if not np.array_equal(pattern.indices // pattern.taps, pattern.rows):
        return "the pattern is not depthwise: an output reads another channel"
    return None


def _work(problem: Problem) -> float:
    """Nanoseconds of one worker for the whole result."""
    taps = len(_kept(problem))
    vectors = problem.positions * -(-problem.pattern.n_out // LANES)
    return vectors * (_MEASURED("pixel") + taps * _MEASURED("tap"))


def cost(problem: Problem) -> float:
    """Estimated microseconds."""
    return 1e-3 * _work(problem) / min(workers(), 16) + _MEASURED("call")


def pack(problem: Problem, candidate: object = None) -> Packed:
    """The operands: for every kept tap the weight of every channel, 0 where a channel prunes it."""
    pattern, kept = problem.pattern, _kept(problem)
    order = np.full((len(kept), pattern.n_out), -1, np.int32)
    place = np.searchsorted(kept, pattern.indices % pattern.taps)
    order[place, pattern.rows] = np.arange(pattern.entries, dtype=np.int32)
    image_rows = problem.x_shape[0] * problem.out_hw[0]
    items = 1 if 1e-3 * _work(problem) < _MEASURED("alone") else _ITEMS * workers()
    arrays = 2 * (8 * len(kept) + _ALIGN)
    return Packed(
        executor=CpuExecutor.DEPTHWISE,
        starts=np.zeros((2, pattern.n_out), np.int32),
        indices=np.repeat(kept, pattern.n_out).astype(np.uint16),
        rows=np.zeros(pattern.n_out + 2, np.int32),
        order=order.reshape(-1),
        tile=min(max(image_rows // items, 1), problem.out_hw[0]),
        block=pattern.channels,
        parts=1,
        scratch=workers() * (arrays + _ALIGN) + _ALIGN,
    )


DEPTHWISE = Executor("depthwise", "cpu", reason_against, cost, pack)
