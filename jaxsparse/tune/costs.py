"""What was measured of one problem, and the entry of a tuning table that follows from it."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from jaxsparse.select.portfolio import greedy, ladder, set_cost, widened
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Entry, Rung

#: A variant that lowers the mean best time by less than this share is not worth a rung.
LEAST_GAIN = 0.02


class Costs(msgspec.Struct, frozen=True):
    """Seconds a call of each variant (columns) on each mask (rows); None where it failed or was
    wrong.

    `density` is the share of active tiles of each mask.
    """

    variants: tuple[str, ...]
    density: tuple[float, ...]
    seconds: tuple[tuple[float | None, ...], ...]

    def __post_init__(self) -> None:
        if not self.variants or not self.density or len(self.seconds) != len(self.density):
            raise ValueError("costs: a row for each density, and a column for each variant")
        if any(len(row) != len(self.variants) for row in self.seconds):
            raise ValueError(f"seconds: a row takes {len(self.variants)} numbers")
        if not all(0 <= share <= 1 for share in self.density):
            raise ValueError(f"density is {self.density}; it takes shares from 0 to 1")
        known = [s for row in self.seconds for s in row if s is not None]
        if not all(0 <= s < math.inf for s in known):
            raise ValueError("seconds holds a number that is negative or infinite")

    def table(self) -> np.ndarray:
        """float64[masks, variants], inf for None."""
        rows = [[math.inf if s is None else s for s in row] for row in self.seconds]
        return np.asarray(rows, np.float64)

    def entry(self, problem: Problem, size: int, least: int = 1) -> Entry:
        """The ladder over at most `size` variants. `static` is the one that is best over all masks.

        With `least` above 1 the ladder has a rung for that many, the dense operation among them,
        also where fewer would do: each is put where it costs least.

        Raises:
            ValueError: when some mask was served by no variant.
        """
        cost = self.table()
        chosen = greedy(cost, size, least_gain=LEAST_GAIN)
        rungs = ladder(self.density, cost, chosen)
        used = [column for _, column in rungs]
        if least > 1 and (len(set(used)) < least or not self._dense() <= set(used)):
            wide = widened(cost, used, least, sorted(self._dense()))
            rungs = ladder(self.density, cost, wide, each=True)
        return Entry(
            op=problem.op,
            dtype=problem.dtype,
            features=dict(problem.features),
            static=self.variants[chosen[0]],
            ladder=tuple(Rung(up_to, self.variants[column]) for up_to, column in rungs),
        )

    def _dense(self) -> set[int]:
        return {i for i, name in enumerate(self.variants) if name == DENSE}

    def rows(self, places: Sequence[int]) -> "Costs":
        """The masks in some places."""
        density = tuple(self.density[p] for p in places)
        return Costs(self.variants, density, tuple(self.seconds[p] for p in places))

    def then(self, other: "Costs") -> "Costs":
        """The masks of both, of the same variants."""
        density = (*self.density, *other.density)
        return Costs(self.variants, density, (*self.seconds, *other.seconds))

    def joined(self, other: "Costs") -> "Costs":
        """The masks of both, for the variants that both have."""
        common = tuple(v for v in self.variants if v in other.variants)
        rows = [
            tuple(row[costs.variants.index(v)] for v in common)
            for costs in (self, other)
            for row in costs.seconds
        ]
        return Costs(common, (*self.density, *other.density), tuple(rows))

    def best(self) -> float:
        """The mean over the masks of the best time, in seconds."""
        return set_cost(self.table(), range(len(self.variants)))
