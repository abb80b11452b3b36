"""Rates of a site's variants from what was measured of them: what a choice on the device is made
from.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import nnls

from jaxsparse.core.dtypes import BYTES
from jaxsparse.index import TileIndex
from jaxsparse.select.masked_conv.cost import Work, candidate, features, listed
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Rate, TuningTable
from jaxsparse.select.variants import Variant, table
from jaxsparse.tune.costs import Costs

OP = "masked_conv"
#: How much a deviation from a typical start or fill weighs, by 1: a few masks cannot tell them from
#: the steps.
PULL = 0.02


def rates_of(
    problem: Problem, index: TileIndex, costs: Costs, known: TuningTable
) -> tuple[Rate, ...]:
    """The rates of the variants that ran on every mask; none of other ops, of grouped convolutions
    and of float32 at `highest`, whose choice on the device nothing offers.

    Args:
        problem: of the site.
        index: its shapes.
        costs: what was measured.
        known: the table in force, whose variants that were not measured keep their rates, scaled as
            the measured ones are on the middle.
    """
    f = problem.features
    if problem.op != OP or f["groups"] != 1 or problem.dtype not in BYTES:
        return ()
    taps, channels, outputs, stride = shape_of(problem)
    work = Work(taps, channels, outputs, BYTES[problem.dtype], int(f["pixels"]), stride)
    rows, times = table(OP, problem.platform), costs.table() * 1e6
    area = math.prod(index.tile)
    counts = [round(density * problem.n_tiles) for density in costs.density]
    found: dict[str, Rate] = {}
    near = known.rates_of(OP, problem.dtype, work.shape)
    longer: list[float] = []
    for name, us in zip(costs.variants, times.T, strict=True):
        if not np.isfinite(us).all():
            continue
        rate = Rate(OP, problem.dtype, name, 0.0, 0.0, 0.0, shape=work.shape)
        if name == DENSE:
            if problem.platform == "cuda":
                found[name] = msgspec.structs.replace(
                    rate, step=round(float(us.mean()) * 1e9 / work.macs, 4)
                )
        elif problem.platform == "cpu":
            found[name] = _line(rate, work, area, counts, us)
        elif "tile_m" in rows[name].fields:
            found[name] = _stairs(rate, rows[name], work, area, counts, us, known.processors)
            if name in near:
                told = candidate(rows[name], near[name], work, area, known.processors)
                longer += [t / told.at(n) for t, n in zip(us, counts, strict=True)]
    if problem.platform == "cpu":
        return tuple(found.values())
    ratio = float(np.median(longer)) if longer else 1.0
    others = (_scaled(rate, ratio, work.shape) for n, rate in near.items() if n not in found)
    return (*found.values(), *others)


def lines_of(problem: Problem, costs: Costs) -> tuple[Rate, ...]:
    """The rates of the variants of another op that ran on every row: microseconds of a call, and of
    each tile (block, row) that is active.
    """
    counts = [density * problem.n_tiles for density in costs.density]
    found = []
    for name, us in zip(costs.variants, (costs.table() * 1e6).T, strict=True):
        if np.isfinite(us).all():
            least = float(us.min())
            start, step = _solve([(1.0, n) for n in counts], np.maximum(us, 1e-3), (least, 0.0))
            shape = shape_of(problem)
            found.append(Rate(problem.op, problem.dtype, name, start, step, 0.0, shape=shape))
    return tuple(found)


def shape_of(problem: Problem) -> tuple[int, ...]:
    """The shape that the rates of a problem are known by."""
    if problem.op == OP:
        names = ("taps", "channels", "outputs", "stride")
        return tuple(int(problem.features[n]) for n in names)
    return problem.shape


def _line(rate: Rate, work: Work, area: int, counts: Sequence[int], us: np.ndarray) -> Rate:
    macs = work.taps * work.channels * work.outputs / 1e6
    start, step = _solve([(1.0, macs * area * n) for n in counts], us, (float(us.min()), 0.0))
    return msgspec.structs.replace(rate, start=start, step=step)


def _stairs(
    rate: Rate,
    row: Variant,
    work: Work,
    area: int,
    counts: Sequence[int],
    us: np.ndarray,
    processors: int,
) -> Rate:
    terms = [features(row, work, area, processors, n, 0) for n in counts]
    wanted = np.maximum(us - listed(), 1e-3)
    start, step, row_step, fill = _solve(
        [(one, whole, even, zeros) for one, whole, _, even, zeros in terms],
        wanted,
        (float(wanted.min()), 0.0, 0.0, 0.003),
    )
    return msgspec.structs.replace(rate, start=start, step=step, row_step=row_step, fill=fill)


def _solve(
    rows: Sequence[tuple[float, ...]], us: np.ndarray, usual: tuple[float, ...]
) -> tuple[float, ...]:
    """The factors, none negative, that come nearest to `us` by relative error. Where masks leave
    them open, the first is near `usual`, the others small.
    """
    scaled = np.asarray(rows, np.float64) / us[:, None]
    size = np.maximum(np.abs(scaled).max(0), 1e-12)
    pull = PULL * np.diag(size)
    wanted = np.concatenate([np.ones(len(us)), pull @ np.asarray(usual)])
    solution, _ = nnls(np.concatenate([scaled, pull]), wanted)
    return tuple(float(f"{v:.5g}") for v in solution)


def _scaled(rate: Rate, ratio: float, shape: tuple[int, ...]) -> Rate:
    """The rate of what was not measured (boxes, where the index has single pixels), as of this
    shape: a call compares rates of one shape only.
    """
    changes: dict[str, Any] = {"shape": shape}
    if rate.variant != DENSE:
        changes |= {
            "step": round(rate.step * ratio, 4),
            "row_step": round(rate.row_step * ratio, 4),
        }
    return msgspec.structs.replace(rate, **changes)
