"""Where a sparse operation stops paying: the density at which its speed-up over the dense one falls
through 1, or, where no one density divides, the densities at which it is faster.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

from jaxsparse.bench.report.rows import DENSE, Row


def crossover(densities: Sequence[float], speedups: Sequence[float]) -> float | None:
    """The density at which the speed-up falls through 1, between measured ones linear in its
    logarithm.

    inf when it is above 1 at every density, 0.0 when at none, None without a measurement or when
    the speed-up rises through 1 somewhere: then no density divides faster from slower.
    """
    points = sorted(zip(densities, speedups, strict=True))
    faster = [s >= 1 for _, s in points]
    above = sum(faster)
    if not points or not all(faster[:above]):
        return None
    if above == len(points):
        return math.inf
    if not above:
        return 0.0
    (d0, s0), (d1, s1) = points[above - 1], points[above]
    share = math.log(s0) / (math.log(s0) - math.log(s1))
    return d0 + share * (d1 - d0)


def faster_at(densities: Sequence[float], speedups: Sequence[float]) -> str:
    """The measured densities at which the speed-up is 1 or more: "0.3-0.5, 1"."""
    points = sorted(zip(densities, speedups, strict=True))
    runs = itertools.groupby(points, lambda point: point[1] >= 1)
    spans = [[d for d, _ in run] for faster, run in runs if faster]
    return ", ".join(f"{s[0]:.3g}" if len(s) == 1 else f"{s[0]:.3g}-{s[-1]:.3g}" for s in spans)


def crossovers(rows: Iterable[Row]) -> tuple[float | None, float | None]:
    """The crossover of one side, in pixel and in tile density."""
    known = [r for r in rows if r.correct and r.speedup is not None]
    speedups = [r.speedup for r in known if r.speedup is not None]
    pixel = crossover([r.pixel_density for r in known], speedups)
    return pixel, crossover([r.tile_density for r in known], speedups)


def crossover_text(rows: Iterable[Row]) -> str:
    """The crossover as "pixel / tile", "always", "never", or "at ..." with the pixel densities at
    which a side is faster that has no one crossover.
    """
    rows = list(rows)
    known = [r for r in rows if r.correct and r.speedup is not None]
    if not known or any(r.side == DENSE for r in rows):
        return ""
    pixel, tile = crossovers(rows)
    if pixel is None or tile is None:
        return f"at {faster_at([r.pixel_density for r in known], [r.speedup or 0 for r in known])}"
    if math.isinf(pixel):
        return "always"
    return f"{pixel:.2f} / {tile:.2f}" if pixel else "never"
