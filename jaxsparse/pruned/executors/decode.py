"""The executors of frozen weights on CUDA for few rows of x, which read every weight once:
pairs, lanes, runs.

What each packs is in docs/packed.md. Costs are microseconds on an H200.
"""

from typing import Any

import numpy as np

from jaxsparse.core.device import MULTIPROCESSORS, clusters, shared_bytes
from jaxsparse.core.dtypes import HALF
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.layouts import lanes, pairs, runs
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import table

LANES, PAIRS, RUNS = 20, 21, 23
MOST_ROWS, LANES_MOST_ROWS = 64, 16
PARTS = (1, 2, 4, 8)
_NONE = np.zeros(0, np.int32)
# `won_*`: between which sizes `lanes` and `pairs` beat cuBLAS (docs/kernels/pruned_gpu.md), and
# `runs`, up to which density with how many rows of x (`runs_won`, in turn). `two_blocks_runs`: runs
# of a weight, without padding, for which two blocks a multiprocessor were faster: 4096 x 4096 at 90
# %, up to 4 rows of x. `lanes_x_bytes` of a block: more cost more to load than the sums of a
# cluster. `pairs`, `lanes`, `runs`: the terms of their costs.
_MEASURED = Measured("pruned_decode", "cuda")


def built() -> bool:
    """Whether this build has CUDA kernels."""
    return bool(table("pruned_rows", "cuda"))


def _against(problem: Problem, most: int, multiple: int) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if problem.geometry is not None:
        return "it has no window"
    if problem.dtype not in HALF:
        return f"its products are of 16-bit numbers, not {problem.dtype}"
    if problem.positions > most:
        return f"it takes up to {most} rows, not {problem.positions}"
    if problem.pattern.n_in % multiple:
        return f"n_in={problem.pattern.n_in} is not a multiple of {multiple}"
    return None


def _pairs_against(problem: Problem) -> str | None:
    why = _against(problem, MOST_ROWS, 8)
    fullest = pairs.PairsPack(_NONE, _NONE, _NONE, 1, pairs.OUTPUTS * pairs.INPUTS // pairs.PIECE)
    if why is None and pairs.shared_bytes(fullest, 1, problem.positions) > shared_bytes():
        return f"{problem.positions} rows do not fit the shared memory of a block here"
    return why


def _pairs_choice(problem: Problem) -> tuple[int, int]:
    """Tiles of an item, and parts."""
    tiles = 4 if problem.pattern.density <= 0.2 else 1
    groups = -(-problem.pattern.n_out // (8 * pairs.OUTPUTS))
    parts = 1
    while parts < 8 and groups * parts < 100 and parts * tiles * 128 < problem.pattern.n_in:
        parts *= 2
    return tiles, parts


def _pairs_cost(problem: Problem) -> float:
    # Fitted to random patterns of 4096 and 8192 inputs and outputs, 50 to 90 % sparse.
    weights = problem.pattern.n_in * problem.pattern.n_out * 1e-6
    kept = 1.0 - (1.0 - problem.pattern.density) ** 2
    start, each, pair, row = _MEASURED.several("pairs")
    return start + weights * (each + pair * kept) + row * problem.positions


def _pack_pairs(problem: Problem, candidate: Any) -> Packed:
    choice = tuple(candidate or _pairs_choice(problem))
    if choice not in _pairs_candidates(problem):
        raise ValueError(f"candidate={candidate!r}: the pairs executor takes tiles and parts")
    pattern, (tiles, parts) = problem.pattern, choice
    pack = pairs.pack_pairs(pattern.indptr, pattern.indices, pattern.n_in, tiles)
    while tiles > 1 and pairs.shared_bytes(pack, tiles, problem.positions) > shared_bytes():
        tiles //= 2  # an item of the fullest strip must fit
        pack = pairs.pack_pairs(pattern.indptr, pattern.indices, pattern.n_in, tiles)
    return Packed(
        PAIRS,
        starts=pack.starts,
        indices=pack.indices,
        order=pack.order,
        value_dtype=None,
        tile=tiles,
        block=pack.largest,
        parts=parts,
    )


def _pairs_candidates(problem: Problem) -> list[Any]:
    return [None, *((tiles, parts) for tiles in pairs.TILES for parts in PARTS)]


def _lanes_against(problem: Problem) -> str | None:
    why = _against(problem, LANES_MOST_ROWS, 8)
    if why is None and not _lanes_candidates(problem)[1:]:
        return f"n_in={problem.pattern.n_in} does not fit the shared memory of {PARTS[-1]} blocks"
    if why is None and not clusters():
        return "it needs a GPU with clusters (compute capability 9.0)"
    return why


def _lanes_shared(problem: Problem, parts: int) -> int:
    """Bytes of x in a block."""
    rows = max(1, problem.positions)
    return lanes.part_inputs(problem.pattern.n_in, parts) * lanes.input_bytes(rows)


def _lanes_choice(problem: Problem) -> tuple[int, int]:
    """Strips and parts: the fewest parts that leave x little to load, then as many strips as keep
    every multiprocessor busy.
    """
    parts = next(
        (p for p in PARTS if _lanes_shared(problem, p) <= _MEASURED("lanes_x_bytes")), PARTS[-1]
    )
    enough = 0.75 * 32 * MULTIPROCESSORS
    most = [s for s in lanes.STRIPS if problem.pattern.n_out * parts >= s * enough]
    return max(most, default=1), parts


def _lanes_cost(problem: Problem) -> float:
    # Fitted to random patterns of 4096 and 8192 inputs and outputs, 90 % sparse.
    rows = problem.positions
    start, row, each, more = _MEASURED.several("lanes")
    return start + row * rows + problem.pattern.entries * 1e-6 * (each + more * rows)


def _pack_lanes(problem: Problem, candidate: Any) -> Packed:
    choice = tuple(candidate or _lanes_choice(problem))
    if choice not in _lanes_candidates(problem):
        raise ValueError(f"candidate={candidate!r}: no such strips and parts of the lanes executor")
    pattern, (strips, parts) = problem.pattern, choice
    pack = lanes.pack_lanes(
        pattern.indptr,
        pattern.indices,
        pattern.n_in,
        strips=strips,
        parts=parts,
        rows=max(1, problem.positions),
    )
    return Packed(
        LANES,
        starts=pack.starts,
        indices=pack.indices,
        rows=pack.rows,
        order=pack.order,
        value_dtype=None,
        tile=strips,
        parts=parts,
    )


def _lanes_candidates(problem: Problem) -> list[Any]:
    able = [
        (strips, parts)
        for parts in PARTS
        if _lanes_shared(problem, parts) <= shared_bytes()
        and lanes.part_inputs(problem.pattern.n_in, parts) <= lanes.MOST_INPUTS
        for strips in lanes.STRIPS
    ]
    return [None, *able]


def _runs_against(problem: Problem) -> str | None:
    why = _against(problem, LANES_MOST_ROWS, 8)
    if why is None and not _runs_candidates(problem)[1:]:
        size = f"n_in={problem.pattern.n_in}, n_out={problem.pattern.n_out}"
        return f"{size} does not fit the threads and the shared memory of its blocks"
    if why is None and not clusters():
        return "it needs a GPU with clusters (compute capability 9.0)"
    return why


def _runs_choice(problem: Problem) -> tuple[int, int, int]:
    """Bits of a place, parts (the fewest that fit) and blocks: two a multiprocessor where only they
    fit, and where few rows meet threads of one run, so that one block's beginning hides another's
    end.
    """
    every = _runs_candidates(problem)[1:]
    able = [c for c in every if c[2] == runs.BLOCKS[0]] or every
    bits, parts, blocks = min(able, key=lambda c: (c[1], (c[0] == 8) == _dense(problem)))
    low, high = _MEASURED.several("two_blocks_runs")
    few = problem.positions <= 4 and low <= problem.pattern.entries / runs.ENTRIES <= high
    if few and (bits, parts, runs.BLOCKS[1]) in _runs_candidates(problem):
        blocks = runs.BLOCKS[1]
    return bits, parts, blocks


def _dense(problem: Problem) -> bool:
    """Whether 4 bits a place are fewer bytes: zeros fill gaps of more than 15."""
    return problem.pattern.density > 0.15


def _runs_cost(problem: Problem) -> float:
    rows = problem.positions
    start, row, each, more = _MEASURED.several("runs")
    return start + row * rows + problem.pattern.entries * 1e-6 * (each + more * rows)


def _pack_runs(problem: Problem, candidate: Any) -> Packed:
    choice = tuple(candidate or _runs_choice(problem))
    choice += runs.BLOCKS[:1] * (3 - len(choice))  # plans tuned before there were blocks to choose
    if choice not in _runs_candidates(problem):
        raise ValueError(f"candidate={candidate!r}: no such bits, parts and blocks of runs")
    pattern, (bits, parts, blocks) = problem.pattern, choice
    pack = runs.pack_runs(
        pattern.indptr,
        pattern.indices,
        pattern.n_in,
        bits=bits,
        parts=parts,
        rows=max(1, problem.positions),
        blocks=blocks,
    )
    return Packed(
        RUNS,
        starts=pack.starts,
        indices=pack.bases,
        rows=pack.rows,
        extra=pack.places,
        order=pack.order,
        value_dtype=None,
        tile=pack.warps + 64 * bits,
        block=pack.chunks,
        parts=parts,
    )


def _runs_candidates(problem: Problem) -> list[Any]:
    pattern, rows = problem.pattern, max(1, problem.positions)
    able = [
        (bits, parts, blocks)
        for parts in PARTS
        for blocks in runs.BLOCKS
        if runs.fits(pattern.n_in, pattern.n_out, parts, rows, blocks)
        and runs.shared_bytes(pattern.n_in, pattern.n_out, parts, rows, blocks) <= shared_bytes()
        for bits in runs.BITS
    ]
    return [None, *able]


def _measured_sizes(problem: Problem) -> bool:
    low, high = _MEASURED.several("won_sizes")
    pattern = problem.pattern
    return pattern.density <= _MEASURED("won_density") and all(
        low <= size <= high for size in (pattern.n_in, pattern.n_out)
    )


def _lanes_won(problem: Problem) -> bool:
    most = 8 if problem.pattern.n_in * problem.pattern.n_out <= 4200 * 4200 else 4
    return problem.positions <= most and _measured_sizes(problem)


def _pairs_won(problem: Problem) -> bool:
    pattern = problem.pattern
    return (
        clusters()  # measured there, and with the shared memory that its items are cut for
        and problem.positions <= 16
        and _measured_sizes(problem)
        and min(pattern.n_in, pattern.n_out) >= _MEASURED("pairs_won_size")
    )


def _runs_won(problem: Problem) -> bool:
    pattern, (low, high) = problem.pattern, _MEASURED.several("runs_won_sizes")
    won = _MEASURED.several("runs_won")
    able = zip(won[::2], won[1::2], strict=True)
    most = next((rows for density, rows in able if pattern.density <= density), 0)
    if pattern.density <= _MEASURED("won_density") and pattern.n_in * pattern.n_out <= 4200 * 4200:
        most = LANES_MOST_ROWS
    return problem.positions <= most and all(
        low <= size <= high for size in (pattern.n_in, pattern.n_out)
    )


DECODE_EXECUTORS = (
    Executor(
        "pairs", "cuda", _pairs_against, _pairs_cost, _pack_pairs, _pairs_candidates, _pairs_won
    ),
    Executor(
        "lanes", "cuda", _lanes_against, _lanes_cost, _pack_lanes, _lanes_candidates, _lanes_won
    ),
    Executor("runs", "cuda", _runs_against, _runs_cost, _pack_runs, _runs_candidates, _runs_won),
)
