"""A small portfolio of variants that covers all masks, and the ladder that picks among them by
density.

The mean over masks of the best cost in a set of variants is a supermodular set function, so adding
whichever variant lowers it most, one at a time, is within 1 - 1/e of the best set (DynaSpa 3.2).
Pure numpy: costs in, choices out.
"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

Ladder = list[tuple[float, int]]


def set_cost(cost: ArrayLike, chosen: Sequence[int]) -> float:
    """The mean over masks of the cheapest of the `chosen` variants; inf for a mask that none of
    them serves.

    Args:
        cost: float[masks, variants].
        chosen: columns.
    """
    table = _checked(cost)
    if not chosen:
        return float("inf")
    return float(table[:, list(chosen)].min(1).mean())


def greedy(cost: ArrayLike, size: int, *, least_gain: float = 0.0) -> list[int]:
    """Choose at most `size` variants, each the one that lowers the mean best cost most.

    Args:
        cost: float[masks, variants], the time of each variant on each mask; inf where it cannot
            run.
        size: the most variants to choose.
        least_gain: stop when the next variant lowers the mean by less than this share of it.

    Returns:
        Columns in the order of choice: the first is the best single variant. A variant that helps
        no mask is left out.

    Raises:
        ValueError: for a table that is not two-dimensional, holds NaN or negative costs, or has no
            masks or variants; for size < 1; when no variant serves some mask.
    """
    table = _checked(cost)
    if size < 1:
        raise ValueError(f"size={size}; a portfolio holds at least one variant")
    if not np.isfinite(table.min(1)).all():
        raise ValueError("cost: there is a mask that no variant serves")
    # What cannot run costs more than everything that can: coverage comes before speed.
    finite = np.isfinite(table)
    table = np.where(finite, table, table[finite].sum() + 1.0)
    chosen: list[int] = []
    best = np.full(len(table), np.inf)
    while len(chosen) < min(size, table.shape[1]):
        means = np.minimum(best[:, None], table).mean(0)
        pick = int(means.argmin())
        if chosen and not means[pick] < best.mean() * (1.0 - least_gain):
            break
        chosen.append(pick)
        best = np.minimum(best, table[:, pick])
    return chosen


def widened(cost: ArrayLike, chosen: Sequence[int], least: int, always: Sequence[int]) -> list[int]:
    """`chosen`, the columns `always`, and the cheapest of the rest until there are `least`.

    Columns that cannot serve some mask are never added; so there may be fewer.
    """
    table = _checked(cost)
    means = table.mean(0)
    serve = [int(c) for c in np.argsort(means, kind="stable") if np.isfinite(means[c])]
    wanted = dict.fromkeys([*chosen, *(c for c in always if c in serve)])
    for column in serve:
        if len(wanted) >= least:
            break
        wanted[column] = None
    return list(wanted)


def ladder(
    density: ArrayLike, cost: ArrayLike, chosen: Sequence[int], *, each: bool = False
) -> Ladder:
    """The split of the densities into at most len(chosen) runs, a variant each, with the least mean
    cost; with `each`, into one run for every chosen variant (for as many as there are different
    densities).

    Args:
        density: float[masks], the share of active tiles of each mask.
        cost: float[masks, variants].
        chosen: the columns to choose among.

    Returns:
        (up_to, column) rungs of ascending density, neighbours unequal. An edge lies half-way
        between the densities that it separates; the last is 1.
    """
    table = _checked(cost)[:, list(chosen)]
    at = np.asarray(density, np.float64)
    if at.shape != (len(table),):
        raise ValueError(f"density has shape {at.shape}; cost has {len(table)} masks")
    levels, level = np.unique(at, return_inverse=True)
    # Masks of equal density cannot be told apart: they share a rung.
    per_level = np.zeros((len(levels), table.shape[1]))
    np.add.at(per_level, level, table)
    runs = _split_each(per_level) if each else _split(per_level, len(chosen))
    # Sums of equal costs may differ in their last bit, so neighbours may still be equal.
    last = [i for i in range(len(runs)) if i + 1 == len(runs) or runs[i][1] != runs[i + 1][1]]
    stops = [runs[i][0] for i in last]
    edges = [float((levels[stop - 1] + levels[stop]) / 2) for stop in stops[:-1]] + [1.0]
    return [(edge, chosen[runs[i][1]]) for edge, i in zip(edges, last, strict=True)]


def _split(cost: np.ndarray, most: int) -> list[tuple[int, int]]:
    """(stop, column) of the cheapest split of the rows into at most `most` runs, by dynamic
    programming.
    """
    rows = len(cost)

    @functools.cache
    def best(start: int, left: int) -> tuple[float, list[tuple[int, int]]]:
        if start == rows:
            return 0.0, []
        options = []
        for stop in range(start + 1, rows + 1) if left > 1 else (rows,):
            run = cost[start:stop].sum(0)
            column = int(run.argmin())
            rest, runs = best(stop, left - 1)
            options.append((float(run[column]) + rest, [(stop, column), *runs]))
        return min(options, key=lambda option: (option[0], len(option[1])))

    return best(0, most)[1]


def _split_each(cost: np.ndarray) -> list[tuple[int, int]]:
    """(stop, column) of the cheapest split of the rows into one run a column, in any order of the
    columns, or into one a row where there are fewer rows.
    """
    rows, columns = cost.shape
    runs = min(rows, columns)

    @functools.cache
    def best(start: int, used: frozenset[int]) -> tuple[float, list[tuple[int, int]]]:
        left = runs - len(used)
        if left == 0:
            return (0.0, []) if start == rows else (float("inf"), [])
        options: list[tuple[float, list[tuple[int, int]]]] = [(float("inf"), [])]
        for stop in range(start + 1, rows - left + 2):
            for column in set(range(columns)) - used:
                rest, after = best(stop, used | {column})
                took = float(cost[start:stop, column].sum())
                options.append((took + rest, [(stop, column), *after]))
        return min(options, key=lambda option: option[0])

    return best(0, frozenset())[1]


def _checked(cost: ArrayLike) -> np.ndarray:
    table = np.asarray(cost, np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"cost has shape {table.shape}; it needs [masks, variants], both at least 1"
        )
    if np.isnan(table).any() or (table < 0).any():
        raise ValueError("cost holds NaN or negative values")
    return table
