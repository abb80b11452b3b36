"""What `js.tune` does: from the ops in a function, through measurements, to a tuning table."""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress

from jaxsparse.bench.report.provenance import provenance
from jaxsparse.core.device import device_kind
from jaxsparse.select.config import config
from jaxsparse.select.problem import Problem
from jaxsparse.select.sites import Site, watch
from jaxsparse.select.table import Rate, TuningTable, table_for
from jaxsparse.testing import make_masks
from jaxsparse.tune.cache import CostCache
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.held_out import SELECTIONS, entry_key, losers, split, without
from jaxsparse.tune.measure import Bench, measure_site
from jaxsparse.tune.rows.given import Given, given, runs
from jaxsparse.tune.rows.row import Row, index_of, of_masks, of_runs
from jaxsparse.tune.search.finalists import finalists, taken
from jaxsparse.tune.site_rates import lines_of, rates_of, shape_of


def sites_of(fn: Callable[..., Any], *args: Any) -> list[Site]:
    """The different problems of `fn(*args)` on this machine's platform that have variants to choose
    among.
    """
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    found = [s for s in watch(fn, *args) if s.problem.platform == platform]
    found = [s for s in found if len(s.branches) > 1]
    return list({msgspec.json.encode(_problem_key(s)): s for s in found}.values())


def seen_by(sites: Sequence[Site], fn: Callable[..., Any], *args: Any) -> dict[bytes, list[Given]]:
    """What a run of `fn(*args)` gives the sites without a `TileIndex`, by `_site_key`; nothing
    where all have one, or where the arguments are shapes alone.
    """
    if all(index_of(site) is not None for site in sites) or not runs(args):
        return {}
    found: dict[bytes, list[Given]] = {}
    for site, one in given(fn, *args):
        found.setdefault(_site_key(site), []).append(one)
    return found


def rows_of(
    sites: Sequence[Site],
    seen: Mapping[bytes, Sequence[Given]],
    masks: list[Any],
    densities: Sequence[float],
    seed: int,
) -> tuple[list[Site], list[list[Row]]]:
    """The sites that can be measured, and the rows of each in an order by `seed`.

    Warns:
        RuntimeWarning: naming the ops whose data is not known.
    """
    kept, found, unknown = [], [], dict[str, None]()
    for site in sites:
        index = index_of(site)
        if index is not None:
            rows = of_masks(site, draw_masks(masks, index.shape, densities))
        else:
            rows = of_runs(site, seen.get(_site_key(site), ()), densities)
        if not rows:
            unknown[site.problem.op] = None
            continue
        order = np.random.default_rng(seed).permutation(len(rows))
        kept.append(site)
        found.append([rows[i] for i in order])
    if unknown:
        warnings.warn(
            f"not tuned: {', '.join(unknown)}: measured on the masks of a run, so give arrays as "
            "arguments, not shapes",
            RuntimeWarning,
            stacklevel=4,
        )
    return kept, found


class Budget:
    """What is left to measure: times that a variant runs on a mask, and minutes; None has no limit.

    Args:
        trials: of a variant on a mask.
        minutes: from now on.
        now: seconds.
    """

    def __init__(
        self,
        trials: int | None = None,
        minutes: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        self._trials = math.inf if trials is None else float(trials)
        self._now, self._end = now, math.inf if minutes is None else now() + 60.0 * minutes
        self._of: Budget | None = None

    def share(self, parts: int) -> "Budget":
        """One of so many equal parts of what is left; what it spends is spent here, too."""
        part = Budget(now=self._now)
        part._trials = self._trials / parts
        left = self._end - self._now()
        part._end = self._now() + left / parts
        part._of = self
        return part

    def spend(self, trials: int) -> None:
        """Count so many."""
        self._trials -= trials
        if self._of is not None:
            self._of.spend(trials)

    def allows(self, trials: int) -> bool:
        """Whether so many more may begin."""
        return self._trials >= trials and self._now() < self._end


@dataclasses.dataclass(frozen=True)
class Plan:
    """A search in place of measuring every variant on every row: the share of the cells that it
    measures, the size of the portfolio, its seed, and by op what it keeps whatever it finds.
    """

    share: float
    size: int
    seed: int
    always: Mapping[str, set[str]]


def measure(
    sites: Sequence[Site],
    rows: Sequence[Sequence[Row]],
    *,
    calls: int,
    samples: int,
    cache: CostCache,
    progress: bool,
    budget: Budget | None = None,
    plan: Plan | None = None,
) -> list[Costs]:
    """The costs of each site on its rows, from the cache as far as they are kept there; of as many
    rows as the budget allows, which the sites share out. Of every variant, or of those that `plan`
    finds.
    """
    budget = budget or Budget()
    costs = []
    with Progress(console=Console(stderr=True), transient=True, disable=not progress) as bar:
        task = bar.add_task("tuning", total=len(sites))
        for place, (site, mine) in enumerate(zip(sites, rows, strict=True)):
            label = f"{site.problem.op} {site.problem.dtype}"

            def on_step(name: str, text: str = label) -> None:
                bar.update(task, description=f"{text}: {name}")

            share = budget.share(len(sites) - place)
            costs.append(_measured(site, mine, calls, samples, cache, share, on_step, plan))
            bar.advance(task)
    return costs


def _measured(
    site: Site,
    rows: Sequence[Row],
    calls: int,
    samples: int,
    cache: CostCache,
    budget: Budget,
    on_step: Callable[[str], None],
    plan: Plan | None,
) -> Costs:
    """What is kept of the site, and of further rows as many as the budget allows; one at least."""
    key = _key(site, rows, calls, samples)
    if plan is not None:
        key |= {"search": [plan.share, plan.size, plan.seed]}
    kept = cache.get(key)
    if kept is not None:
        site = _only(site, kept.variants)
    elif plan is not None:
        site = _only(site, _found(site, rows, calls, samples, budget, on_step, plan))
    left = rows[len(kept.density) if kept else 0 :]
    if kept is not None and not (left and budget.allows(len(site.branches))):
        return kept

    def on_row(new: Costs) -> bool:
        cache.put(key, kept.then(new) if kept else new)
        budget.spend(len(new.variants))
        return budget.allows(len(new.variants))

    new = measure_site(site, left, calls=calls, samples=samples, on_step=on_step, on_row=on_row)
    return kept.then(new) if kept else new


def _found(
    site: Site,
    rows: Sequence[Row],
    calls: int,
    samples: int,
    budget: Budget,
    on_step: Callable[[str], None],
    plan: Plan,
) -> tuple[str, ...]:
    """The variants that the search finds on the masks that are not held out."""
    mine = [rows[i] for i in split(len(rows))[0]]

    def spend() -> bool:
        budget.spend(1)
        return budget.allows(1)

    bench = Bench(site, mine[0], calls=calls, samples=samples)
    return finalists(
        site,
        mine,
        measure=lambda row, name: bench.measure(row, (name,), on_step)[1][name],
        share=plan.share,
        size=plan.size,
        always=plan.always.get(site.problem.op, ()),
        seed=plan.seed,
        spend=spend,
    )


def _only(site: Site, names: Sequence[str]) -> Site:
    return dataclasses.replace(site, branches={n: site.branches[n] for n in names})


def shipped_names(look: Callable[[], Sequence[Site]]) -> dict[str, set[str]]:
    """Op -> what the shipped table takes, in each way of choosing."""
    found: dict[str, set[str]] = {}
    for selection in SELECTIONS:
        with config(selection=selection):
            for op, names in taken(look()).items():
                found.setdefault(op, set()).update(names)
    return found


def tuned(
    look: Callable[[], Sequence[Site]],
    sites: Sequence[Site],
    costs: Sequence[Costs],
    size: int,
    tile: tuple[int, int] | None = None,
    *,
    least: int = 1,
    merge: bool = True,
) -> TuningTable:
    """The table of measured sites, made from the masks of the search, without those sites whose
    choice by it is slower than the shipped one's on the masks that were held out.

    Args:
        look: the sites, as they choose under the settings in force.
        sites, costs, size, tile, least: as in `table_of`.
        merge: put it into the shipped table of this device.
    """
    platform = sites[0].problem.platform
    shipped = table_for(device_kind(platform), platform)
    parts = [split(len(found.density)) for found in costs]
    seen = [found.rows(search) for found, (search, _) in zip(costs, parts, strict=True)]
    made = table_of(sites, seen, size, tile, least=least)
    tests: dict[Any, Costs] = {}
    for site, found, (_, test) in zip(sites, costs, parts, strict=True):
        tests[_site_key(site)] = found.rows(test)
    lost = losers(look, _site_key, shipped, shipped | made, tests)
    problems = {
        entry_key(s.problem.op, s.problem.dtype, s.problem.features): s.problem for s in sites
    }
    shapes = {(p.op, p.dtype, shape_of(p)) for key, p in problems.items() if key in lost}
    kept = without(made, lost, shapes)
    if lost:
        told = f"{kept.measured}; {len(lost)} of {len(problems)} problems keep the shipped choice"
        kept = msgspec.structs.replace(kept, measured=told)
    return shipped | kept if merge else kept


def _site_key(site: Site) -> bytes:
    """What a site is known by, whatever it chooses among."""
    return msgspec.json.encode({k: v for k, v in _problem_key(site).items() if k != "variants"})


def table_of(
    sites: Sequence[Site],
    costs: Sequence[Costs],
    size: int,
    tile: tuple[int, int] | None = None,
    *,
    least: int = 1,
) -> TuningTable:
    """The table of measured sites: ladders and rates; its tile is `tile`, else that of the first
    site with an index.

    Sites that a table cannot tell apart (a forward and a backward call of equal features) share an
    entry.
    """
    platform = sites[0].problem.platform
    where, known = provenance(), table_for(device_kind(platform), platform)
    alike: dict[bytes, tuple[Problem, Costs]] = {}
    for site, found in zip(sites, costs, strict=True):
        key = _entry_key(site.problem)
        before = alike.get(key)
        alike[key] = site.problem, before[1].joined(found) if before else found
    entries = [found.entry(problem, size, least) for problem, found in alike.values()]
    indices = {_entry_key(site.problem): index_of(site) for site in sites}
    rates: dict[tuple[Any, ...], Rate] = {}
    for key, (problem, found) in alike.items():
        index = indices[key]
        made = lines_of(problem, found) if index is None else rates_of(problem, index, found, known)
        for rate in made:
            rates.setdefault((rate.op, rate.dtype, rate.variant, rate.shape), rate)
    tiles = [index.tile for index in indices.values() if index is not None]
    versions = ", ".join(f"{k} {v}" for k, v in where.versions.items())
    return TuningTable(
        device=device_kind(platform),
        measured=f"{where.date}, {where.device}, commit {where.commit or '?'}, {versions}",
        entries=tuple(entries),
        tile=tile or (tiles[0] if tiles else known.tile),
        processors=known.processors,
        rates=tuple(rates.values()),
    )


def _entry_key(problem: Problem) -> bytes:
    return msgspec.json.encode((problem.op, problem.dtype, problem.features))


def draw_masks(
    masks: list[Any], shape: tuple[int, int, int], densities: Sequence[float]
) -> list[np.ndarray]:
    """Masks of a shape: each named generator at each density, or real ones scaled to it.

    Raises:
        TypeError, ValueError: for what is neither.
    """
    given = [masks] if isinstance(masks, str) else list(masks)
    names = [m for m in given if isinstance(m, str)]
    if names and len(names) != len(given):
        raise TypeError("masks takes names or bool[B, H, W] arrays, not both")
    if names:
        return [make_masks(name, shape, d)[0] for name in names for d in densities]
    if not given:
        raise ValueError("masks is empty")
    return [scale(np.asarray(m), shape) for m in given]


def scale(mask: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """A mask bool[B, H, W] at another size: the nearest pixels, images repeated or dropped."""
    if mask.dtype != np.bool_ or mask.ndim != 3 or 0 in mask.shape:
        raise TypeError(f"a mask is bool[B, H, W], not {mask.dtype}{list(mask.shape)}")
    rows = [np.arange(n) * m // n for n, m in zip(shape[1:], mask.shape[1:], strict=True)]
    return mask[np.arange(shape[0]) % mask.shape[0]][:, rows[0]][:, :, rows[1]]


def _problem_key(site: Site) -> dict[str, Any]:
    """What tells sites apart: the problem and every operand's shape."""
    index, problem = index_of(site), site.problem
    tiles = [] if index is None else [list(index.tile), list(index.shape), index.capacity]
    return {
        "op": problem.op,
        "dtype": problem.dtype,
        "features": problem.features,
        "operands": [f"{a.dtype}{list(a.shape)}" for a in jax.tree.leaves(site.operands)],
        "index": [*tiles, *([] if index is None else [index.align])],
        "variants": list(site.branches),
    }


def _key(site: Site, rows: Sequence[Row], calls: int, samples: int) -> dict[str, Any]:
    where = provenance()
    return {
        **_problem_key(site),
        "device": where.device,
        "versions": where.versions,
        "commit": where.commit,
        "masks": [row.name for row in rows],
        "calls": calls,
        "samples": samples,
    }
