"""Which variants of a site are worth measuring on every row: what the search chose, and what the
shipped table takes.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jaxsparse.core.device import device_kind
from jaxsparse.core.dtypes import BYTES
from jaxsparse.select.masked_conv.bound import bound_us
from jaxsparse.select.masked_conv.cost import Work
from jaxsparse.select.roofline.machine import machine_of
from jaxsparse.select.sites import Site
from jaxsparse.select.table import DENSE, table_for
from jaxsparse.select.variants import table
from jaxsparse.tune.rows.row import Row, index_of
from jaxsparse.tune.search.algorithm import Found, search


def finalists(
    site: Site,
    rows: Sequence[Row],
    *,
    measure: Callable[[Row, str], float | None],
    share: float,
    size: int,
    always: Iterable[str],
    seed: int,
    spend: Callable[[], bool],
) -> tuple[str, ...]:
    """The variants that a search over `share` of the cells chooses, and those of `always`.

    Args:
        site, rows: what is searched.
        measure: the seconds of a variant on a row; None where it failed or was wrong.
        share: of variants times rows; at least one cell.
        size: of the portfolio.
        always: names that are kept whatever the search finds.
        seed: of the search.
        spend: called for each cell; the search ends where it returns False.
    """
    names = tuple(site.branches)
    densities = [row.make().density for row in rows]
    found: Found = search(
        features_of(site, densities),
        prior_of(site, densities),
        lambda v, m: measure(rows[m], names[v]),
        trials=max(1, round(share * len(names) * len(rows))),
        size=size,
        seed=seed,
        allows=spend,
    )
    chosen = {names[v] for v in found.chosen} | set(always)
    return tuple(name for name in names if name in chosen)


def features_of(site: Site, densities: Sequence[float]) -> np.ndarray:
    """float[variants, rows, n]: the variant's place, the density, and the numbers of its row in the
    table of variants.
    """
    rows = table(site.problem.op, site.problem.platform)
    fields = [rows[n].fields if n in rows else {} for n in site.branches]
    numbers = sorted({k for f in fields for k, v in f.items() if isinstance(v, (int, bool))})
    facts = [[float(f.get(k, -1)) for k in numbers] for f in fields]
    return np.asarray([[[i, d, *own] for d in densities] for i, own in enumerate(facts)])


def prior_of(site: Site, densities: Sequence[float]) -> np.ndarray:
    """float[variants, rows]: the analytic bound of a convolution on a GPU in microseconds, and of
    XLA's dense one the median of the full mask; ones of everything else.
    """
    problem, index = site.problem, index_of(site)
    ones = np.ones((len(site.branches), len(densities)))
    f = problem.features
    known = problem.op == "masked_conv" and problem.platform == "cuda"
    if index is None or not known or f["groups"] != 1 or problem.dtype not in BYTES:
        return ones
    tuning, rows = table_for(device_kind("cuda"), "cuda"), table("masked_conv", "cuda")
    taps, channels, outputs = (int(f[n]) for n in ("taps", "channels", "outputs"))
    work = Work(taps, channels, outputs, BYTES[problem.dtype], int(f["pixels"]), int(f["stride"]))
    area, machine = math.prod(index.tile), machine_of(tuning)
    names = [n for n in site.branches if n in rows and "tile_m" in rows[n].fields]

    def bounds(name: str, shares: Sequence[float]) -> list[float]:
        counts = [round(d * problem.n_tiles) for d in shares]
        return [bound_us(rows[name], work, problem.dtype, n, area, machine) for n in counts]

    if not names:
        return ones
    full = float(np.median([bounds(name, [1.0]) for name in names]))
    found = {name: bounds(name, densities) for name in names}
    return np.asarray([found.get(n, [full] * len(densities)) for n in site.branches])


def taken(sites: Sequence[Site]) -> dict[str, set[str]]:
    """Op -> the variants that the sites' choices take, and the dense operation."""
    found: dict[str, set[str]] = {}
    for site in sites:
        names = found.setdefault(site.problem.op, {DENSE})
        if site.choice is not None:
            names |= {r.variant for r in site.choice.rungs}
            names |= {c.variant for c in site.choice.candidates}
    return found
