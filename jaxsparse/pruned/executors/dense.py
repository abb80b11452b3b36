"""Dense through XLA as an executor among the others: a plan must never lose to what it replaces."""

import numpy as np

from jaxsparse.core.device import MULTIPROCESSORS, workers
from jaxsparse.pruned.executor import Executor, Packed, Problem

# Of one core, in the units of the estimate for strips (jaxsparse/pruned/strips.py), fitted to 22
# layers on two cores (docs/kernels/pruned_conv.md): XLA's products and convolutions reach this rate
# on large layers, and pay for moving their operands, and for packing the weights of a window.
_PRODUCT_OPS_PER_US, _WINDOW_OPS_PER_US = 2.4e5, 2.05e5
_CORE_BYTES_PER_US, _PACKED_PER_US = 2.25e4, 9.0e2  # weights packed in one of these
_CUDA_OPS_PER_US = {"highest": 4.0e7, "tf32": 2.5e8, "half": 4.5e8}
_CUDA_BYTES_PER_US = 3.0e6
# XLA's float32 convolutions, fitted to 42 layers and batches (0.71 to 1.27 of what was measured):
# a tile of 128 positions by 128 outputs pays for the depth of its sums; less where few tiles run,
# but not below that share; the last wave is partly hidden.
_TILE, _DEPTH_US, _LEAST_SHARE, _FULL_TILES, _HIDDEN = 128, 0.0707, 0.366, 50, 0.93
_STRIDED, _WINDOW_BYTES_PER_US, _WINDOW_US = 1.12, 8.1e5, 4.6
_LAUNCH = {"cpu": 4.0, "cuda": 5.0}


def _moved(problem: Problem) -> float:
    """Bytes of the weights, the input and the result."""
    elements = problem.pattern.size + np.prod(problem.x_shape)
    elements += problem.positions * problem.pattern.n_out
    return float(elements) * (4.0 if problem.dtype == "float32" else 2.0)


def _cost_cpu(problem: Problem) -> float:
    """Estimated microseconds, rather too few than too many: a plan that is no faster than dense
    should be dense.
    """
    size = problem.pattern.size
    windows = (problem.pattern.window or (1, 1)) != (1, 1)
    work = 2.0 * problem.positions * size
    work /= _PRODUCT_OPS_PER_US if problem.kind == "matmul" else _WINDOW_OPS_PER_US
    packing = size / _PACKED_PER_US if windows else 0.0
    shared = work + packing + _moved(problem) / _CORE_BYTES_PER_US
    return shared / min(workers(), 16) + _LAUNCH["cpu"]


def _cost_cuda(problem: Problem) -> float:
    pattern = problem.pattern
    precision = "highest" if problem.precision == "highest" else "tf32"
    rate = _CUDA_OPS_PER_US["half" if problem.dtype != "float32" else precision]
    work = 2.0 * problem.positions * pattern.size / rate
    if problem.kind == "conv" and problem.precision == "highest" and problem.dtype == "float32":
        return _window_us(problem)
    return max(work, _moved(problem) / _CUDA_BYTES_PER_US) + _LAUNCH["cuda"]


def _window_us(problem: Problem) -> float:
    pattern = problem.pattern
    tiles = -(-problem.positions // _TILE) * -(-pattern.n_out // _TILE)
    waves = max(1.0, tiles / MULTIPROCESSORS + 1.0 - _HIDDEN)
    deep = _DEPTH_US * pattern.n_in * min(1.0, max(_LEAST_SHARE, tiles / _FULL_TILES))
    strided = problem.geometry is not None and max(problem.geometry.strides) > 1
    deep *= _STRIDED if strided else 1.0
    return _WINDOW_US + waves * deep + _moved(problem) / _WINDOW_BYTES_PER_US


def _pack(problem: Problem, candidate: object) -> Packed:
    raise TypeError("the dense executor packs nothing: it is XLA's own product")


DENSE_CPU = Executor("dense", "cpu", lambda problem: None, _cost_cpu, _pack)
DENSE_CUDA = Executor("dense", "cuda", lambda problem: None, _cost_cuda, _pack)
