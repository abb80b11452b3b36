"""Dense through XLA as an executor among the others: a plan must never lose to what it replaces."""

import numpy as np

from jaxsparse.core.device import MULTIPROCESSORS, workers
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.select.table import Measured

# Of one core, in the units of the estimate for strips (jaxsparse/pruned/strips.py), fitted to 22
# layers on two cores (docs/kernels/pruned_conv.md): XLA's products and convolutions reach
# `product_ops_per_us` and `window_ops_per_us` on large layers, and pay for moving their operands
# (`bytes_per_us`), and for packing the weights of a window (`packed_per_us`); `launch` a call. In
# groups a convolution reaches no more than `grouped_ops_per_us` for each channel of a group: at 14
# to 112 pixels and 64 to 512 channels half of it was measured, with one channel.
_CPU = Measured("pruned_dense", "cpu")
# `ops_per_us` by precision. XLA's float32 convolutions, fitted to 42 layers and batches (0.71 to
# 1.27 of what was measured): a tile of 128 positions by 128 outputs pays for the depth of its sums
# (`depth_us`); less where fewer than `full_tiles` run, but not below `least_share`; the last wave
# is partly `hidden`.
_CUDA = Measured("pruned_dense", "cuda")
_TILE = 128


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
    rate = _CPU("product_ops_per_us" if problem.kind == "matmul" else "window_ops_per_us")
    if problem.pattern.groups > 1:
        of_group = problem.pattern.channels // problem.pattern.groups
        rate = min(rate, _CPU("grouped_ops_per_us") * of_group)
    work = 2.0 * problem.positions * size / rate
    packing = size / _CPU("packed_per_us") if windows else 0.0
    shared = work + packing + _moved(problem) / _CPU("bytes_per_us")
    return shared / min(workers(), 16) + _CPU("launch")


def _cost_cuda(problem: Problem) -> float:
    pattern = problem.pattern
    precision = "highest" if problem.precision == "highest" else "tf32"
    rate = _CUDA("ops_per_us", "half" if problem.dtype != "float32" else precision)
    work = 2.0 * problem.positions * pattern.size / rate
    if problem.kind == "conv" and problem.precision == "highest" and problem.dtype == "float32":
        return _window_us(problem)
    return max(work, _moved(problem) / _CUDA("bytes_per_us")) + _CUDA("launch")


def _window_us(problem: Problem) -> float:
    pattern = problem.pattern
    tiles = -(-problem.positions // _TILE) * -(-pattern.n_out // _TILE)
    waves = max(1.0, tiles / MULTIPROCESSORS + 1.0 - _CUDA("hidden"))
    share = min(1.0, max(_CUDA("least_share"), tiles / _CUDA("full_tiles")))
    deep = _CUDA("depth_us") * pattern.n_in * share
    strided = problem.geometry is not None and max(problem.geometry.strides) > 1
    deep *= _CUDA("strided") if strided else 1.0
    return _CUDA("window_us") + waves * deep + _moved(problem) / _CUDA("window_bytes_per_us")


def _pack(problem: Problem, candidate: object) -> Packed:
    raise TypeError("the dense executor packs nothing: it is XLA's own product")


DENSE_CPU = Executor("dense", "cpu", lambda problem: None, _cost_cpu, _pack)
DENSE_CUDA = Executor("dense", "cuda", lambda problem: None, _cost_cuda, _pack)
