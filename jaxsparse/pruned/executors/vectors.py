"""The executor of frozen weights on CUDA for vectors of 8 outputs that share an input, on tensor
cores.

What it packs is in docs/packed.md. Costs are microseconds on an H200.
"""

import weakref
from typing import Any

import numpy as np

from jaxsparse.core.device import MULTIPROCESSORS, clusters, shared_bytes
from jaxsparse.core.dtypes import BYTES, HALF
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.layouts.vectors import GROUPS, OUTPUTS, WARPS, pack_vectors
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.select.table import Measured

VECTORS = 18
_TILE_ROWS = 64
# Of a block: VectorConfig::kSharedBytes of the kernel. GPUs with clusters may have less.
_SHARED_BYTES = {4: 230_496, 2: 165_952}  # by the bytes of an element
# Microseconds: of a `call`; of a `column` with a tile; of a megabyte of x that a tile reads
# (`read`); of a group's results (`store`); of a `megabyte` that is read or written once. Fitted to
# 33 measurements. `won_*`: where it beat cuBLAS's TF32 in every measurement
# (docs/kernels/pruned_gpu.md): vectors that are nearly full (`won_fill`), and the largest density,
# by the fewest inputs (`_FEWEST`).
_MEASURED = Measured("pruned_vectors", "cuda")
_FEWEST = (512, 1024)


def _against(problem: Problem) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if problem.geometry is not None:
        return "it has no window"
    piece = 8 if problem.dtype in HALF else 4
    if 0 in (problem.pattern.n_in, problem.pattern.n_out):
        return "the weight is empty"
    if problem.pattern.n_in % piece:
        return f"n_in={problem.pattern.n_in} is not a multiple of {piece}"
    if problem.dtype == "float32" and problem.precision == "highest":
        return "its products of float32 are TF32"
    if not clusters():
        return "it needs a GPU whose copies fill boxes (compute capability 9.0)"
    if shared_bytes() < (needed := _SHARED_BYTES[BYTES[problem.dtype]]):
        return (
            f"it takes {needed} bytes of shared memory for a block; this GPU has {shared_bytes()}"
        )
    return None


_counted: weakref.WeakKeyDictionary[Pattern, int] = weakref.WeakKeyDictionary()


def _columns(pattern: Pattern) -> int:
    """How many inputs the groups of 8 outputs keep, all together; of sizes at which this executor
    never comes first, how many they would of random places.
    """
    groups = -(-pattern.n_out // OUTPUTS)
    if max(pattern.n_in, pattern.n_out) > _MEASURED.several("won_sizes")[1]:
        return round(groups * pattern.n_in * (1.0 - (1.0 - pattern.density) ** OUTPUTS))
    if pattern not in _counted:
        kept = np.zeros((groups, max(1, pattern.n_in)), bool)
        output = np.repeat(np.arange(pattern.n_out), np.diff(pattern.indptr))
        kept[output // OUTPUTS, pattern.indices] = True
        _counted[pattern] = int(kept.sum())
    return _counted[pattern]


def _time(problem: Problem, groups: int) -> float:
    """An estimate: the tiles of the busiest multiprocessor, and all bytes."""
    pattern, m = problem.pattern, max(1, problem.positions)
    size = 2e-6 if problem.dtype in HALF else 4e-6
    slabs = -(-pattern.n_out // (OUTPUTS * groups * WARPS))
    turns = -(-(-(-m // _TILE_ROWS) * slabs) // MULTIPROCESSORS)
    tile = _columns(pattern) / slabs * _MEASURED("column") + _MEASURED("store") * groups
    tile += size * _TILE_ROWS * pattern.n_in * _MEASURED("read")
    return (
        _MEASURED("call")
        + turns * tile
        + size * m * (pattern.n_in + pattern.n_out) * _MEASURED("megabyte")
    )


def _choices(problem: Problem) -> list[int]:
    """Groups of a warp, by estimated time."""
    return sorted(GROUPS, key=lambda groups: _time(problem, groups))


def _cost(problem: Problem) -> float:
    return _time(problem, _choices(problem)[0])


def _pack(problem: Problem, candidate: Any) -> Packed:
    choices = _choices(problem)
    groups = choices[0]
    if candidate and (len(candidate) != 1 or (groups := candidate[0]) not in choices):
        raise ValueError(f"candidate={candidate!r}: no such groups of the vectors executor")
    pattern = problem.pattern
    element = 2 if problem.dtype in HALF else 4
    pack = pack_vectors(pattern.indptr, pattern.indices, pattern.n_in, element, groups)
    return Packed(
        VECTORS,
        starts=pack.starts,
        indices=pack.indices,
        rows=pack.rows,
        extra=pack.extra,
        order=pack.order,
        value_dtype=None,
        tile=groups,
        block=pack.window,
    )


def _candidates(problem: Problem) -> list[Any]:
    return [None, *((groups,) for groups in _choices(problem)[1:])]


def _won(problem: Problem) -> bool:
    """Against cuBLAS's TF32."""
    pattern, (least, most) = problem.pattern, _MEASURED.several("won_sizes")
    if problem.dtype != "float32" or problem.out_dtype != "float32":
        return False
    fewest, largest = _MEASURED.several("won_rows")
    if not fewest <= problem.positions <= largest:
        return False
    if not (least <= pattern.n_in <= most and least <= pattern.n_out <= most):
        return False
    able = [str(inputs) for inputs in _FEWEST if pattern.n_in >= inputs]
    densest = max(_MEASURED("won_density", inputs) for inputs in able)
    if pattern.density > densest:
        return False
    return pattern.entries >= _MEASURED("won_fill") * OUTPUTS * _columns(pattern)


VECTORS_EXECUTOR = Executor("vectors", "cuda", _against, _cost, _pack, _candidates, _won)
