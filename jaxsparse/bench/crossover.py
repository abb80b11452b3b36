"""Where a sparse operation stops paying: the density at which its speed-up over the dense one falls
through 1.
"""

import math
from collections.abc import Iterable, Sequence

from jaxsparse.bench.rows import DENSE, Row


def crossover(densities: Sequence[float], speedups: Sequence[float]) -> float | None:
    """The density at which the speed-up falls through 1, between measured ones linear in its
    logarithm.

    inf when it is above 1 at every density, 0.0 when at none, None without a measurement.
    """
    points = sorted(zip(densities, speedups, strict=True))
    if not points:
        return None
    if points[-1][1] >= 1:
        return math.inf
    above = [i for i, (_, s) in enumerate(points) if s >= 1]
    if not above:
        return 0.0
    (d0, s0), (d1, s1) = points[above[-1]], points[above[-1] + 1]
    share = math.log(s0) / (math.log(s0) - math.log(s1))
    return d0 + share * (d1 - d0)


def crossovers(rows: Iterable[Row]) -> tuple[float | None, float | None]:
    """The crossover of one side, in pixel and in tile density."""
    known = [r for r in rows if r.correct and r.speedup is not None]
    speedups = [r.speedup for r in known if r.speedup is not None]
    pixel = crossover([r.pixel_density for r in known], speedups)
    return pixel, crossover([r.tile_density for r in known], speedups)


def crossover_text(rows: Iterable[Row]) -> str:
    """The crossover as "pixel / tile", "always" or "never"."""
    rows = list(rows)
    pixel, tile = crossovers(rows)
    if pixel is None or tile is None or any(r.side == DENSE for r in rows):
        return ""
    if math.isinf(pixel):
        return "always"
    return f"{pixel:.2f} / {tile:.2f}" if pixel else "never"
