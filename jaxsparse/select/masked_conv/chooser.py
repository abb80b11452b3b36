"""How `masked_conv` chooses: the cost of each variant, which of them stand beside each other in one
call, and why the others do not take a problem.
"""

import dataclasses
import functools
import math

from jaxsparse.select.choice import Against, Chooser, Offer, register
from jaxsparse.select.costs import Candidate, line
from jaxsparse.select.masked_conv.between import rates_for
from jaxsparse.select.masked_conv.cost import Work, candidate, dense
from jaxsparse.select.masked_conv.estimate import of_this_device
from jaxsparse.select.masked_conv.portfolio import best_few, held, splits
from jaxsparse.select.masked_conv.problem import OP, ConvProblem
from jaxsparse.select.masked_conv.reasons import half_empty, reason_against, takes, too_narrow
from jaxsparse.select.select import table_in_force
from jaxsparse.select.table import DENSE, Rate, TuningTable, estimate_with
from jaxsparse.select.variants import Variant, also_runs, table

for _platform in ("cpu", "cuda"):
    also_runs(OP, _platform, DENSE)
estimate_with(of_this_device)


def candidates(problem: ConvProblem) -> Offer:
    """What could run the problem: single variants, and the call whose kernel chooses."""
    found = costs(problem)
    together = best_few(
        problem.platform, problem.tile_counts, found, lambda: costs(problem, cluster=4)
    )
    names = (*takes(problem), DENSE)
    against = Against.NOT_ASKED if together else Against.NO_RATES
    return Offer(
        names,
        costs=found,
        together=together,
        tiles=problem.tile_counts,
        against=against,
        reach=math.inf,
    )


def against(problem: ConvProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    reasons = {name: reason_against(problem, name) for name in table(OP, problem.platform)}
    return {name: why for name, why in reasons.items() if why}


def costs(problem: ConvProblem, *, cluster: int = 1) -> dict[str, Candidate]:
    """Name -> candidate of every variant that takes this problem and was measured, dense among
    them; those that can visit every tile without a list, and do not split K, come twice. `cluster`:
    CTAs of a cluster of the launch.

    Of a shape that was measured, the variants that stand beside each other in one call are those
    measured on it: rates of another shape cannot be compared with them.
    """
    work, known = work_of(problem), problem.known
    tuning, cuda = table_in_force(problem.platform), problem.platform == "cuda"
    rates = (rates_for if cuda else _nearest)(tuning, known.dtype, work.shape)
    found: dict[str, Candidate] = {}
    listless = problem.align == "grid" and not problem.may_overflow
    for name, row in table(OP, problem.platform).items():
        if name not in rates or half_empty(row, work.outputs) or too_narrow(row, problem):
            continue
        if cuda and held(row) and rates[name].shape not in (work.shape, ()):
            continue
        cost = functools.partial(_cost, problem, tuning, row, rates[name], work, cluster=cluster)
        for place, tile in enumerate(problem.tiles):
            if reason_against(problem, name, tile) is None:
                found[name] = cost(tile, place)
                break
        if splits(row):
            continue  # it is for few tiles
        tile = (8, 8) if row.fields.get("box") else (1, 1)
        if listless and reason_against(problem, name, tile) is None:
            every = cost(tile, None)
            found[every.name] = every
    if DENSE in rates and cuda:
        nearest = tuning.rates_of(OP, known.dtype, work.shape).get(DENSE)
        measured = nearest is not None and nearest.shape == work.shape
        found[DENSE] = dense(rates[DENSE], work, measured=measured)
    return found


def _nearest(tuning: TuningTable, dtype: str, shape: tuple[int, ...]) -> dict[str, Rate]:
    return tuning.rates_of(OP, dtype, shape)


def work_of(problem: ConvProblem) -> Work:
    """What the cost of a call depends on besides its mask."""
    (kh, kw, per_group, outputs), strides = problem.kernel_shape, problem.geometry.strides
    pixels, stride = math.prod(problem.shape), strides[0] * strides[1]
    fills, bare = problem.fills, problem.bare
    return Work(kh * kw, per_group, outputs, problem.itemsize, pixels, stride, fills, bare)


def _cost(
    problem: ConvProblem,
    tuning: TuningTable,
    row: Variant,
    rate: Rate,
    work: Work,
    tile: tuple[int, int],
    place: int | None,
    *,
    cluster: int = 1,
) -> Candidate:
    """The candidate over list `place`, of such tiles, or over every tile where None."""
    (images, height, width), area = problem.shape, math.prod(problem.sides(tile))
    every = images * -(-height // tile[0]) * -(-width // tile[1])
    tiles = every if place is None else None
    if problem.platform == "cpu":
        macs = work.taps * work.channels * work.outputs / 1e6
        return line(rate, macs, macs * area, number=row.number, tiles=tiles, place=place or 0)
    processors = tuning.processors
    return candidate(
        row, rate, work, area, processors, place=place or 0, tiles=tiles, cluster=cluster
    )


CHOOSER = register(Chooser(OP, ConvProblem, candidates, against, by_density=True))
#: A dense layer at tokens is a convolution of one row of pixels: its problems say what was asked.
DENSE_CHOOSER = register(dataclasses.replace(CHOOSER, op="masked_dense"))
