"""A tuned table never loses to the shipped one on the masks that it was not made from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from jaxsparse.select.config import config
from jaxsparse.select.sites import Site
from jaxsparse.select.table import TuningTable
from jaxsparse.tune.costs import Costs

#: Ways to choose that are compared; None is the default.
SELECTIONS = (None, "static", "switch")
#: Masks from which a part is held out, and which: every fourth.
LEAST, EVERY = 4, 4


def split(rows: int) -> tuple[list[int], list[int]]:
    """The masks that a search sees, and those that it is tested on, by their place in the order in
    which they were measured; fewer than four are both.
    """
    places = list(range(rows))
    if rows < LEAST:
        return places, places
    test = places[EVERY - 1 :: EVERY]
    return [p for p in places if p not in test], test


def seconds(site: Site, costs: Costs) -> float:
    """What the site's choice takes on the masks of `costs`, in seconds: the mean; inf where it runs
    what was not measured or failed.
    """
    if site.choice is None:
        return float("inf")
    n_tiles = max(site.problem.n_tiles, 1)
    took, table = [], costs.table()
    for row, density in zip(table, costs.density, strict=True):
        name = site.choice.variant([round(density * n_tiles)], n_tiles)
        name = name.removesuffix(" on every tile")
        took.append(row[costs.variants.index(name)] if name in costs.variants else np.inf)
    return float(np.mean(took))


def losers(
    look: Callable[[], Sequence[Site]],
    key: Callable[[Site], Any],
    shipped: TuningTable,
    tuned: TuningTable,
    tests: Mapping[Any, Costs],
) -> set[Any]:
    """The problems, by `entry_key`, whose choice by `tuned` is slower than that by `shipped` on the
    test masks of all their sites, for some way of choosing.

    Args:
        look: the sites, as they choose under the settings in force.
        key: what a site is known by.
        shipped, tuned: the tables.
        tests: key -> what was measured on the test masks.
    """
    found: set[Any] = set()
    for selection in SELECTIONS:
        took = []
        for table in (shipped, tuned):
            with config(tuning=table, selection=selection):
                sites = {key(site): site for site in look()}
            sums: dict[Any, float] = {}
            for name, site in sites.items():
                if name in tests:
                    p = site.problem
                    group = entry_key(p.op, p.dtype, p.features)
                    sums[group] = sums.get(group, 0.0) + seconds(site, tests[name])
            took.append(sums)
        old, new = took
        found |= {k for k in old.keys() & new.keys() if new[k] > old[k]}
    return found


def without(table: TuningTable, entries: set[Any], rates: set[Any]) -> TuningTable:
    """The table without some entries, by what `entry_key` says, and rates of (op, dtype, shape)."""
    return msgspec.structs.replace(
        table,
        entries=tuple(
            e for e in table.entries if entry_key(e.op, e.dtype, e.features) not in entries
        ),
        rates=tuple(r for r in table.rates if (r.op, r.dtype, r.shape) not in rates),
    )


def entry_key(op: str, dtype: str, features: Mapping[str, float]) -> tuple[Any, ...]:
    """What a table knows a problem by."""
    return op, dtype, tuple(sorted(features.items()))
