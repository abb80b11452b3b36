"""The executors of frozen weights on CUDA: data-driven rows, generated code, and those of other
modules: vectors on tensor cores, inputs split over blocks, few rows of x.

What each packs is in docs/packed.md. Costs are microseconds on an H200; they rank what
was not measured. An executor comes before dense only where it was measured to win.
"""

from typing import Any

import numpy as np

from jaxsparse.core.device import CLOCK, MULTIPROCESSORS, clusters, shared_bytes
from jaxsparse.core.dtypes import BYTES, HALF
from jaxsparse.pruned.emit.emitter import Emitter
from jaxsparse.pruned.emit.module import CodeModule
from jaxsparse.pruned.emit.shape import MODULE_PRODUCTS, MOST_PRODUCTS, CodeShape
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors.decode import DECODE_EXECUTORS, built
from jaxsparse.pruned.executors.split import SPLIT_EXECUTOR
from jaxsparse.pruned.executors.vectors import VECTORS_EXECUTOR
from jaxsparse.pruned.layouts.rows import pack_rows
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import table

ROWS, CODE = 16, 19
# `launch` in microseconds; cycles of a quad by rows of a lane, and of a run; how much `slower`
# fewer warps are.
_ROWS = Measured("pruned_rows", "cuda")
# `won_*`: where `code` beat cuBLAS's float32 in every measurement (docs/kernels/pruned_gpu.md);
# with fewer kept weights than `short` from `won_rows_short`, where clusters may split the inputs
# from `won_rows_split`. `few_blocks` of long code: fewer are made more by splitting the inputs.
# `least_wave`: blocks, one a multiprocessor, that leave few of them over.
_MEASURED = Measured("pruned_code", "cuda")


def _variants() -> dict[str, Any]:
    return table("pruned_rows", "cuda")


def _columns(problem: Problem) -> np.ndarray:
    """Inputs in the order in which the kernels read them: tap by tap, channels together."""
    pattern = problem.pattern
    if problem.geometry is None:
        return pattern.indices
    channel, ky, kx = pattern.taps_of()
    return (ky * (pattern.window or (1, 1))[1] + kx) * pattern.channels + channel


def _rows_against(problem: Problem) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if problem.channels_first:
        return "it reads images as NHWC"
    return None


def _rows_choices(problem: Problem) -> list[tuple[float, int, int]]:
    """(cost, variant's number, warps), by cost."""
    found = []
    pattern, m = problem.pattern, max(1, problem.positions)
    for variant in _variants().values():
        for warps in (4, 8, 16):
            cost = _rows_time(pattern, m, variant.fields, warps)
            found.append((cost, variant.number, warps))
    return sorted(found)


def _rows_time(pattern: Any, m: int, f: dict[str, Any], warps: int) -> float:
    """An estimate: cycles of the busiest multiprocessor, so many a quad, so many a run."""
    width = warps * f["outputs"]
    slabs, chunks = -(-pattern.n_out // width), max(1, -(-pattern.n_in // f["chunk"]))
    runs = width * chunks
    kept = pattern.entries / max(1, pattern.n_out * chunks)
    quads = runs * (kept / 4 + 0.45)
    blocks = max(1.0, -(-m // (32 * f["rows"])) * slabs / MULTIPROCESSORS)
    slower = _ROWS("slower", str(warps))
    each = quads * _ROWS("quad_cycles", str(f["rows"])) + runs * _ROWS("run_cycles")
    return _ROWS("launch") + blocks * each * slower / CLOCK


def _rows_cost(problem: Problem) -> float:
    return _rows_choices(problem)[0][0]


def _pack_rows(problem: Problem, candidate: Any) -> Packed:
    choices = [choice[1:] for choice in _rows_choices(problem)]
    choice = tuple(candidate or choices[0])
    if choice not in choices:
        raise ValueError(f"candidate={candidate!r}: no such variant of the rows executor")
    number, warps = choice
    f = next(v.fields for v in _variants().values() if v.number == number)
    pattern = problem.pattern
    pack = pack_rows(
        pattern.indptr,
        _columns(problem),
        pattern.n_in,
        rows=f["rows"],
        chunk=f["chunk"],
        warps=warps,
        outputs=f["outputs"],
    )
    return Packed(
        ROWS,
        starts=pack.starts,
        indices=pack.indices,
        rows=pack.rows,
        extra=pack.extra,
        order=pack.order,
        tile=number,
        block=warps,
    )


def _rows_candidates(problem: Problem) -> list[Any]:
    return [None, *(choice[1:] for choice in _rows_choices(problem)[1:24])]


def _code_against(problem: Problem) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if problem.geometry is not None:
        return "generated code has no window"
    piece = 8 if problem.dtype in HALF else 4
    if problem.pattern.n_in % piece:
        return f"n_in={problem.pattern.n_in} is not a multiple of {piece}"
    if problem.positions < 32:
        return f"a warp's tile is 32 rows, and there are {problem.positions}"
    if problem.pattern.entries > MOST_PRODUCTS:
        return f"{problem.pattern.entries} products are more code than the {MOST_PRODUCTS} that pay"
    return None


def _code_shape(problem: Problem) -> CodeShape:
    """Code that the instruction cache holds: many rows, slices that share x; few, slices apart.
    Longer code, unless one launch ends it in two rounds of blocks: as many warps as the registers
    allow, for each of them waits for its instructions, or one block a multiprocessor; few blocks of
    it: the inputs split, as long as every block has a multiprocessor.
    """
    pattern = problem.pattern
    n, tiles = pattern.n_out, -(-problem.positions // 32)
    whole, slices = 4 * -(-n // 4), -(-n // 64)
    near = pattern.entries <= MODULE_PRODUCTS and pattern.entries * 64 <= 3500 * n
    chunks = pattern.n_in * BYTES[problem.dtype] // 128
    if _long(problem) and not (near and -(-tiles // 4) * slices <= 2 * MULTIPROCESSORS):
        high = min(tiles, 7, shared_bytes() // CodeShape(32, 4, 1).shared_bytes)
        blocks = -(-problem.positions // (32 * high)) * -(-n // 128)
        if blocks > MULTIPROCESSORS >= -(-tiles // 8) * -(-n // 128) and clusters():
            return CodeShape(64, 2, 8)
        if blocks >= _MEASURED("few_blocks"):
            split = clusters() and blocks < 100 and chunks >= 64
            return CodeShape(32, 4, high, 2 if split else 1)
        parts = _code_parts(problem, chunks, -(-tiles // high) * slices)
        return CodeShape(min(64, whole), 1, high, parts)
    if _long(problem):
        blocks = -(-tiles // 7) * slices
        parts = _code_parts(problem, chunks, blocks)
        if parts > 1 and blocks * parts >= _MEASURED("least_wave"):
            return CodeShape(min(64, whole), 1, 7, parts)
        return CodeShape(min(64, whole), 1, min((4, 7), key=lambda t: _warps(tiles, slices, t)))
    if tiles * slices >= 16 * MULTIPROCESSORS:
        return CodeShape(min(64, whole), 2 if n > 64 else 1, 4)
    fewer = slices > 1 and _warps(tiles, slices, 6) <= _warps(tiles, slices, 4)
    return CodeShape(min(64, whole), 1, 6 if fewer else 4)


def _warps(tiles: int, slices: int, row_tiles: int) -> int:
    """Of the busiest multiprocessor, without mates."""
    return -(-(-(-tiles // row_tiles) * slices) // MULTIPROCESSORS) * row_tiles


def _code_parts(problem: Problem, chunks: int, blocks: int) -> int:
    """Blocks of a cluster that split the inputs, of code that has `blocks` without: one a
    multiprocessor, two with few rows.
    """
    most = MULTIPROCESSORS if problem.positions >= _MEASURED("won_rows") else 2 * MULTIPROCESSORS
    able = [p for p in (2, 4, 8) if clusters() and 4 * p <= chunks and blocks * p <= most]
    return max(able, default=1)


def _long(problem: Problem) -> bool:
    """Whether the code passes what the instruction cache holds."""
    entries = problem.pattern.entries
    return entries > 20_000 or (entries > 10_000 and entries * 64 > 2500 * problem.pattern.n_out)


def _code_cost(problem: Problem) -> float:
    # Products, the passes over x, or the code that each warp waits for: what takes longest.
    pattern, shape = problem.pattern, _code_shape(problem)
    m, slices = problem.positions, -(-pattern.n_out // shape.slice_width)
    products = m * pattern.entries
    products /= MULTIPROCESSORS * _MEASURED("products_a_cycle") * CLOCK
    passes = -(-slices // shape.mates)
    moved = 4.0 * m * (pattern.n_in * passes + pattern.n_out)
    moved /= _MEASURED("bytes_per_us")
    streams = shape.mates if shape.parts == 1 else 4
    fetched = _MEASURED("fetch_cycles") * streams * pattern.entries / (slices * shape.parts) / CLOCK
    modules = min(passes, -(-pattern.entries // MODULE_PRODUCTS))
    if shape.parts > 1 and shape.mates == 1 and _MEASURED("won_rows") <= m <= _MEASURED("few_rows"):
        # As measured: 9 cycles an instruction, and the meetings of the cluster.
        more, code, bytes_ = _MEASURED.several("cluster")
        fetched, products, moved = more + code * fetched, more + products, more + bytes_ * moved
    elif _long(problem) and m <= _MEASURED("few_rows"):
        # As measured: few rows share the code.
        share = _MEASURED("few_share")
        fetched, products, moved = share * fetched, share * products, share * moved
    begin = _MEASURED("launch") + _MEASURED("module") * (modules - 1)
    return begin + max(products, moved, fetched)


def _code_won(problem: Problem) -> bool:
    pattern = problem.pattern
    short = pattern.entries <= _MEASURED("short")
    least = _MEASURED("won_rows_short" if short else "won_rows")
    if _long(problem) and clusters():
        least = _MEASURED("won_rows_split")
    inputs, outputs = map(_MEASURED.several, ("won_inputs", "won_outputs"))
    return (
        problem.dtype == "float32"
        and problem.precision == "highest"
        and problem.positions >= least
        and inputs[0] <= pattern.n_in <= inputs[1]
        and outputs[0] <= pattern.n_out <= outputs[1]
        and pattern.density <= _MEASURED("won_density")
    )


def _pack_code(problem: Problem, candidate: Any, values: np.ndarray) -> Packed:
    if candidate and tuple(candidate) not in _code_candidates(problem):
        raise ValueError(f"candidate={candidate!r}: no such shape of generated code")
    shape = CodeShape(*candidate) if candidate else _code_shape(problem)
    codes = Emitter(
        problem.pattern.indptr,
        problem.pattern.indices,
        values,
        problem.pattern.n_in,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        shape=shape,
        hopper=clusters(),
    ).modules(MODULE_PRODUCTS)
    owner = CodeModule(codes, problem)
    return Packed(CODE, order=np.zeros(0, np.int32), code=owner.digest, owner=owner)


def _code_candidates(problem: Problem) -> list[Any]:
    n = problem.pattern.n_out
    shapes = [(64, 1, 4), (64, 1, 8), (32, 1, 4), (64, 4, 4), (64, 2, 4), (32, 4, 4), (32, 4, 2)]
    shapes += [(16, 4, 4), (16, 8, 2), (128, 2, 4), (64, 2, 7), (32, 4, 7), (64, 1, 6), (64, 1, 7)]
    shapes += [(64, 2, 8), (64, 4, 3)]
    split = [(32, 4, 7, parts) for parts in (2, 4, 8)] + [
        (64, 2, 7, 4),
        (64, 1, 8, 2),
        (64, 1, 8, 4),
    ]
    split += [(64, 1, 7, parts) for parts in (2, 4, 8)]
    found = [s for s in shapes if s[0] * s[1] <= max(64, 2 * n)]
    found += [s for s in split if clusters() and s[0] * s[1] <= 2 * n]
    return [None, *(s for s in found if CodeShape(*s).shared_bytes <= shared_bytes())]


def _never_won(problem: Problem) -> bool:
    return False


CUDA_EXECUTORS = (
    Executor("rows", "cuda", _rows_against, _rows_cost, _pack_rows, _rows_candidates, _never_won),
    *DECODE_EXECUTORS,
    SPLIT_EXECUTOR,
    VECTORS_EXECUTOR,
    Executor(
        "code",
        "cuda",
        _code_against,
        _code_cost,
        _pack_code,
        _code_candidates,
        _code_won,
        needs_values=True,
    ),
)
