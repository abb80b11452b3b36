"""The executor of frozen weights on CUDA whose blocks split the inputs: float32 products of tens to
thousands of rows of x.

What it packs is in docs/packed.md. Costs are microseconds on an H200.
"""

import itertools
from typing import Any

from jaxsparse.core.device import MULTIPROCESSORS, clusters, shared_bytes
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.layouts.split import INPUTS, MOST_PARTS, OUTPUTS, ROWS, SplitShape, pack_split
from jaxsparse.select.table import Measured

SPLIT = 25
_ROUNDS = (1, 2, 4, 8)
# `fewer_blocks` at once, by parts: a cluster lies in one GPC, and what is left over of each runs
# none; GPCs differ between devices. `won_*`: where it beat cuBLAS's float32 in every measurement
# (docs/kernels/pruned_gpu.md). The others are the terms of `_time`.
_MEASURED = Measured("pruned_split", "cuda")
_CLUSTERS = (4, 8)  # parts whose clusters leave multiprocessors over


def _against(problem: Problem) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if problem.geometry is not None:
        return "it has no window"
    if problem.dtype != "float32" or problem.out_dtype != "float32":
        return f"its products are of float32, not {problem.dtype} to {problem.out_dtype}"
    if problem.pattern.n_in % 4:
        return f"n_in={problem.pattern.n_in} is not a multiple of 4"
    if problem.pattern.n_in > MOST_PARTS * INPUTS[-1]:
        return f"n_in={problem.pattern.n_in} is more than {MOST_PARTS} blocks of {INPUTS[-1]} take"
    if not clusters():
        return "it needs a GPU with clusters (compute capability 9.0)"
    return None


def _shapes(problem: Problem) -> list[SplitShape]:
    """Shapes that fit, without those that leave most of a tile or a round empty."""
    n, k, m = problem.pattern.n_out, problem.pattern.n_in, problem.positions
    found = [
        SplitShape(*numbers)
        for numbers in itertools.product(ROWS, INPUTS, OUTPUTS, _ROUNDS)
        if numbers[0] == ROWS[0] or 16 * numbers[0] < m
    ]
    return [
        shape
        for shape in found
        if shape.parts(k) <= MOST_PARTS
        and shape.shared_bytes(k) <= shared_bytes()
        and (shape.inputs == INPUTS[0] or k > INPUTS[0])
        and (shape.outputs == OUTPUTS[0] or shape.outputs < 2 * n)
        and (shape.rounds == 1 or shape.outputs * shape.rounds < 2 * n)
    ]


def _time(problem: Problem, shape: SplitShape) -> float:
    """Fitted to 90 measurements (root mean square error 6 %): how often blocks take turns; of
    each what it reads of x and from shared memory, its rounds, and the sums that it hands over.
    """
    pattern, m = problem.pattern, max(1, problem.positions)
    n, k, rows = pattern.n_out, max(1, pattern.n_in), shape.rows
    parts = shape.parts(k)
    blocks = -(-m // (32 * rows)) * shape.groups(n) * parts
    at_once = MULTIPROCESSORS // parts * parts
    if parts in _CLUSTERS:
        at_once = int(_MEASURED("fewer_blocks", str(parts)))
    waves = -(-blocks // at_once)
    outputs, rounds = (
        min(shape.outputs * shape.rounds, n),
        min(shape.rounds, -(-n // shape.outputs)),
    )
    inputs = min(shape.inputs, k)
    quads = outputs * (pattern.density * inputs / 4 + 0.45)
    at = _MEASURED
    read = at("row_input") * rows * inputs + at("quad_row") * quads * (4 * rows + 2)
    read += at("quad") * quads
    each = at("wave") + read + at("round") * rounds + at("output_row") * outputs * rows
    return at("call") + waves * each


def _choices(problem: Problem) -> list[SplitShape]:
    """By estimated time."""
    return sorted(_shapes(problem), key=lambda shape: _time(problem, shape))


def _cost(problem: Problem) -> float:
    return _time(problem, _choices(problem)[0])


def _pack(problem: Problem, candidate: Any) -> Packed:
    choices = _choices(problem)
    shape = choices[0]
    if candidate and (len(candidate) != 4 or (shape := SplitShape(*candidate)) not in choices):
        raise ValueError(f"candidate={candidate!r}: no such shape of the split executor")
    pattern = problem.pattern
    pack = pack_split(pattern.indptr, pattern.indices, pattern.n_in, shape)
    return Packed(
        SPLIT,
        starts=pack.starts,
        indices=pack.places,
        extra=pack.counts,
        order=pack.order,
        tile=shape.rows | shape.inputs << 8 | shape.outputs << 20,
        block=shape.rounds,
        parts=shape.parts(pattern.n_in),
    )


def _candidates(problem: Problem) -> list[Any]:
    numbers = [(s.rows, s.inputs, s.outputs, s.rounds) for s in _choices(problem)[1:24]]
    return [None, *numbers]


def _won(problem: Problem) -> bool:
    pattern, (least, most) = problem.pattern, _MEASURED.several("won_sizes")
    fewest, largest = _MEASURED.several("won_rows")
    return (
        problem.precision == "highest"
        and fewest <= problem.positions <= largest
        and least <= pattern.n_in <= most
        and least <= pattern.n_out <= most
        and pattern.entries >= _MEASURED("won_entries")
        and pattern.density <= _MEASURED("won_density")
    )


SPLIT_EXECUTOR = Executor("split", "cuda", _against, _cost, _pack, _candidates, _won)
