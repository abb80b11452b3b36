"""What a variant costs as a function of the number of tiles: a few measured rates a variant, the
rest is arithmetic.

A wave of compute tiles takes its K steps and a tail, whatever the mask looks like, so a cost is a
staircase in the number of listed tiles; streamed variants share the last wave and grow evenly.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxsparse.select.table import Rate

#: Columns of a row of costs: a + b*n + wave*ceil(n/per_wave), n the count of list `list`.
COLUMNS = ("a", "b", "list", "wave", "per_wave")

#: The list of a candidate that visits every pixel of the mask.
EVERY = -1
#: The most CTAs that share a tile of a streamed wave: kMostParts of cuda/tile/conv/schedule.cuh.
STREAMED_PARTS = 4


class Candidate(NamedTuple):
    """One way to run a call: a variant, over a list or over every tile, and what it costs.

    Attributes:
        variant: its name.
        number: what the handler knows it by.
        list: which list it visits, or EVERY.
        cost: the row (a, b, list, wave, per_wave) in microseconds.
    """

    variant: str
    number: int
    list: int
    cost: tuple[float, float, float, float, float]

    @property
    def name(self) -> str:
        """The variant, and where it needs no list."""
        return f"{self.variant} on every tile" if self.list == EVERY else self.variant

    def at(self, *counts: int) -> float:
        """Microseconds where list i has `counts[i]` tiles."""
        a, b, _, wave, per_wave = self.cost
        if self.list == EVERY:
            return a
        count = counts[self.list]
        return a + b * count + (wave * math.ceil(count / per_wave) if per_wave else 0.0)


def staircase(
    rate: Rate,
    wave: float,
    per_wave: float,
    *,
    streams: bool,
    number: int,
    tiles: int | None = None,
    place: int = 0,
    even: float = 0.0,
    fill: tuple[float, float] = (0.0, 0.0),
    full: int = 0,
) -> Candidate:
    """The candidate of a variant whose waves of `per_wave` tiles take `wave` microseconds.

    Args:
        rate: of the variant.
        wave: microseconds.
        per_wave: tiles that all multiprocessors hold at once, at least 1.
        streams: the last wave is shared, so half a wave costs half, down to `STREAMED_PARTS` CTAs
            for each tile: fewer tiles take as long as one.
        number: what the handler knows the variant by.
        tiles: of a full mask, for a candidate that visits them all; None for one that visits a
            list.
        place: which list.
        even: microseconds of a wave that half a wave takes half of.
        fill: microseconds of filling in a result without a tile, and how many less a tile makes
            it. Where every tile is visited, nothing is left to fill.
        full: the tiles of a full mask, where it is known.
    """
    rows = max(int(per_wave), 1)
    if streams:
        wave, even = 0.0, wave + even
    if tiles is not None:
        shared = streamed_waves(tiles, full=tiles, rows=rows) if streams else tiles / rows
        took = rate.start + wave * math.ceil(tiles / rows) + even * shared
        return Candidate(rate.variant, number, EVERY, (took, 0.0, float(EVERY), 0.0, 0.0))
    start, each = rate.start + fill[0], even / rows
    if streams and full:
        first, last = (streamed_waves(n, full=full, rows=rows) for n in (0, full))
        start, each = start + even * first, even * (last - first) / full
    waves = (wave, float(rows)) if wave else (0.0, 0.0)
    return Candidate(rate.variant, number, place, (start, each - fill[1], float(place), *waves))


def streamed_waves(count: float, *, full: int, rows: int) -> float:
    """Waves that `count` streamed tiles take, of `full` in a full mask and `rows` in a wave: a line
    in the count, as a row of costs holds. It ends at what a full mask takes. It begins at the least
    that a tile takes where all tiles are fewer than what fills the device, and at 0 where they fill
    a wave.
    """
    if not full:
        return count / rows
    least = 1 / STREAMED_PARTS
    most = max(full / rows, least)
    first = least * min(max((1 - most) / (1 - least), 0.0), 1.0)
    return first + (most - first) * count / full


def line(
    rate: Rate, work: float, each: float, *, number: int, tiles: int | None = None, place: int = 0
) -> Candidate:
    """The candidate of a variant without waves: `work` units of `tail` a call, `each` of `step` a
    tile.

    Args:
        rate: of the variant.
        work: units whatever the count.
        each: units a tile.
        number, tiles, place: as in `staircase`.
    """
    start = rate.start + rate.tail * work
    if tiles is not None:
        cost = (start + rate.step * each * tiles, 0.0, float(EVERY), 0.0, 0.0)
        return Candidate(rate.variant, number, EVERY, cost)
    return Candidate(rate.variant, number, place, (start, rate.step * each, float(place), 0.0, 0.0))


def cheapest(candidates: Iterable[Candidate], *counts: int) -> Candidate:
    """The first candidate of the least cost, as the handlers choose it."""
    return min(candidates, key=lambda c: c.at(*counts))


def rows_of(candidates: tuple[Candidate, ...]) -> np.ndarray:
    """float32[v, 5]: the costs as the handlers take them."""
    return np.asarray([c.cost for c in candidates], np.float32).reshape(-1, len(COLUMNS))


@functools.lru_cache(maxsize=512)
def typical(tiles: tuple[int, ...], steps: int = 32) -> tuple[tuple[int, ...], ...]:
    """The counts of every list at densities from empty to full, where list i has `tiles[i]` tiles.

    A third of them as if tiles of all sizes were as dense as those of list 0 (rectangles), a third
    as larger tiles see blobs: 1 - (1 - density)**2, a third as they see single pixels: 1 - (1 -
    density)**k where k tiles of list 0 lie in one.
    """
    densities = [i / steps for i in range(steps + 1)]
    flat = [tuple(round(n * d) for n in tiles) for d in densities]
    if len(tiles) == 1:
        return tuple(flat)
    first, rest = tiles[0], tiles[1:]
    found = flat
    for grain in (lambda n: 2.0, lambda n: first / max(n, 1)):
        found = found + [
            (round(first * d), *(round(n * (1 - (1 - d) ** grain(n))) for n in rest))
            for d in densities
        ]
    return tuple(found)


def costs_on(candidates: Iterable[Candidate], masks: Sequence[tuple[int, ...]]) -> np.ndarray:
    """float64[masks, candidates]: microseconds of each, as `Candidate.at` says."""
    counts = np.asarray(masks, np.float64)

    def column(c: Candidate) -> np.ndarray:
        a, b, _, wave, per_wave = c.cost
        if c.list == EVERY:
            return np.full(len(counts), a)
        count = counts[:, c.list]
        return a + b * count + (wave * np.ceil(count / per_wave) if per_wave else 0.0)

    return np.stack([column(c) for c in candidates], axis=1)


def mean_costs(costs: Mapping[str, Candidate], tiles: tuple[int, ...]) -> dict[str, float]:
    """Mean microseconds of each candidate alone over typical masks; `tiles` as in `typical`."""
    if not costs:
        return {}
    means = costs_on(costs.values(), typical(tiles)).mean(0)
    return dict(zip(costs, map(float, means), strict=True))


def mean_cost(candidates: Sequence[Candidate], *tiles: int) -> float:
    """Mean microseconds of the cheapest candidate over typical masks; `tiles` as in `typical`."""
    return float(costs_on(candidates, typical(tiles)).min(1).mean())
