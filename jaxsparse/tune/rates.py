"""Rates of a masked convolution's variants fitted to measured times, the entries of a table for the
same measurements, and how good the choice is that is made from them.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import nnls

from jaxsparse.select.config import config
from jaxsparse.select.costs import EVERY, Candidate, cheapest
from jaxsparse.select.masked_conv.chooser import candidates as offer
from jaxsparse.select.masked_conv.cost import Work, features, listed
from jaxsparse.select.masked_conv.portfolio import held
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Entry, Rate, TuningTable
from jaxsparse.select.variants import table
from jaxsparse.testing import ConvCase
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.sweep import TILES, Sample, problem_of

OP = "masked_conv"
#: (start in us, fill in us a megabyte) of a typical variant and how much a deviation by 1 weighs:
#: masks of one image size alone cannot tell the two apart.
TYPICAL = ((7.0, 0.003), (0.15, 0.05))


def work_of(sample: Sample) -> Work:
    """The shape of a sample's call."""
    itemsize = 4 if sample.dtype == "float32" else 2
    pixels, stride = sample.tiles[0], sample.stride
    shape = sample.taps, sample.channels, sample.outputs
    return Work(*shape, itemsize, pixels, stride, sample.fills)


def fit(samples: Iterable[Sample], processors: int) -> tuple[Rate, ...]:
    """The rates that come nearest to the samples, by relative error: one for each dtype, variant
    and shape.

    Args:
        samples: of variants and of "dense".
        processors: multiprocessors of the device.
    """

    def key(s: Sample) -> tuple[str, tuple[int, ...], str]:
        return s.dtype, work_of(s).shape, s.variant

    found = []
    for (dtype, shape, variant), group in itertools.groupby(sorted(samples, key=key), key):
        part = list(group)
        if variant == DENSE:
            start, step = _solve_dense(part)
            found.append(Rate(OP, dtype, variant, start, step, 0.0, shape=shape))
            continue
        start, step, row_step, fill = _solve(part, processors)
        found.append(
            Rate(OP, dtype, variant, start, step, 0.0, row_step=row_step, fill=fill, shape=shape)
        )
    return tuple(found)


def _solve_dense(samples: Sequence[Sample]) -> list[float]:
    rows = [(1.0 / s.us, work_of(s).macs / 1e9 / s.us) for s in samples]
    (start, weight), _ = TYPICAL
    solution, _ = nnls(
        np.array([*rows, (weight, 0.0)]), np.array([*np.ones(len(samples)), weight * start])
    )
    return [round(float(v), 4) for v in solution]


def entries(samples: Iterable[Sample], size: int = 4) -> tuple[Entry, ...]:
    """The ladders of the problems that were measured, over their densities of pixels: of variants
    that gather, and of dense.

    Args:
        samples: "dense" among them, for each problem; those with a `base` are left out.
        size: the most variants in a ladder.
    """
    filled = [s for s in samples if s.fills]
    ordered = sorted(filled, key=lambda s: (s.dtype, s.case, s.seed, s.mask))
    found = []
    for (dtype, _), problem in itertools.groupby(ordered, lambda s: (s.dtype, s.case)):
        masks = [
            {s.variant: s for s in group if s.list == 0}
            for _, group in itertools.groupby(problem, lambda s: (s.seed, s.mask))
        ]
        names = tuple(n for n in masks[0] if all(n in mask for mask in masks))
        first = masks[0][names[0]]
        taps, channels, outputs, stride = work_of(first).shape
        features: dict[str, float] = {
            "pixels": first.tiles[0],
            "taps": taps,
            "channels": channels,
            "outputs": outputs,
            "groups": 1,
            "stride": stride,
        }
        density = tuple(m[names[0]].counts[0] / first.tiles[0] for m in masks)
        seconds = tuple(tuple(1e-6 * m[n].us for n in names) for m in masks)
        costs = Costs(names, density, seconds)
        found.append(costs.entry(Problem(OP, "cuda", dtype, features, first.tiles[0]), size))
    return tuple(found)


def _solve(samples: Sequence[Sample], processors: int) -> tuple[float, ...]:
    rows, wanted = [], []
    for s in samples:
        row, place = table(OP, "cuda")[s.variant], _place(s)
        count = s.tiles[place] if s.list == EVERY else s.counts[place]
        area = TILES[place][0] * TILES[place][1]
        one, step, _, row_step, zeros = features(
            row, work_of(s), area, processors, count, EVERY if s.list == EVERY else place
        )
        rows.append([v / s.us for v in (one, step, row_step, zeros)])
        wanted.append(1.0 - (0.0 if s.list == EVERY else listed() / s.us))
    (start, start_weight), (fill, fill_weight) = TYPICAL
    rows += [[start_weight, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, fill_weight]]
    wanted += [start_weight * start, fill_weight * fill]
    solution, _ = nnls(np.array(rows), np.array(wanted))
    return tuple(round(float(v), 4) for v in solution)


def _place(sample: Sample) -> int:
    """The list whose tiles the variant visits, also where it visits all of them."""
    return int(bool(table(OP, "cuda")[sample.variant].fields.get("box")))


@dataclasses.dataclass(frozen=True)
class Regret:
    """One mask: what was chosen, and the best of everything measured.

    Attributes:
        case: the problem's name.
        mask: the kind.
        density: of pixels.
        chosen: name of the candidate.
        us: its time.
        best: name of the fastest.
        best_us: its time.
    """

    case: str
    mask: str
    density: float
    chosen: str
    us: float
    best: str
    best_us: float

    @property
    def ratio(self) -> float:
        """1 where the best was chosen."""
        return self.us / self.best_us


def judge(samples: Iterable[Sample], table: TuningTable, cases: Sequence[ConvCase]) -> list[Regret]:
    """How far the choice that follows from a table is from the best, on every mask of the samples.

    Args:
        samples: of every candidate that calls which choose may hold; those with a `base` are left
            out.
        table: whose rates decide.
        cases: the problems, by name.
    """
    known = {case.name: case for case in cases}
    found = []
    filled = [s for s in samples if s.fills]
    ordered = sorted(filled, key=lambda s: (s.case, s.dtype, s.seed, s.mask))
    for (name, dtype), problem in itertools.groupby(ordered, lambda s: (s.case, s.dtype)):
        candidates = candidates_of(known[name], dtype, table)
        for _, group in itertools.groupby(problem, lambda s: (s.seed, s.mask)):
            took = {(s.variant, s.list): s for s in group}
            first = next(iter(took.values()))
            measured = [c for c in candidates if (c.variant, c.list) in took]
            chosen = cheapest(measured, *first.counts)
            us = took[chosen.variant, chosen.list].us
            best = min((took[k] for k in took if _stands(k[0])), key=lambda s: s.us)
            name_of = best.variant + (" on every tile" if best.list == EVERY else "")
            density = first.counts[0] / first.tiles[0]
            found.append(Regret(name, first.mask, density, chosen.name, us, name_of, best.us))
    return found


def candidates_of(case: ConvCase, dtype: str, tuning: TuningTable) -> tuple[Candidate, ...]:
    """What a call of the case chooses among under a table."""
    with config(tuning=tuning):
        return offer(problem_of(case, dtype)).together


def _stands(variant: str) -> bool:
    """Whether calls that choose may hold the variant."""
    row = table(OP, "cuda").get(variant)
    return row is not None and held(row)
