"""One measurement, and how rows are laid out in tables: sides down, densities across."""

from collections.abc import Sequence

import msgspec

DENSE = "XLA dense"


class Row(msgspec.Struct, frozen=True):
    """One side on one problem at one density. Times are medians per call, in microseconds.

    `speedup` is over "XLA dense" in the same run, by wall time; `device_us` and `device_speedup`
    are None where device time was not measured. `rotated_mb` of distinct inputs pass before one
    comes again. `index_every`: an index is built for so many calls, inside the timing; 0: before
    it.
    """

    op: str
    case: str
    mask: str
    dtype: str
    side: str
    pixel_density: float
    tile_density: float
    tile: str
    index_every: int
    calls: int
    rotated_mb: float
    wall_us: float | None
    wall_low_us: float | None
    wall_high_us: float | None
    device_us: float | None
    speedup: float | None
    device_speedup: float | None
    error: float | None
    tolerance: float
    correct: bool
    note: str = ""


def levels(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The (pixel, tile) densities, in the order of measurement."""
    return list(dict.fromkeys((row.pixel_density, row.tile_density) for row in rows))


def by_side(rows: Sequence[Row]) -> dict[str, dict[tuple[float, float], Row]]:
    """Side -> density -> row."""
    sides: dict[str, dict[tuple[float, float], Row]] = {}
    for row in rows:
        sides.setdefault(row.side, {})[row.pixel_density, row.tile_density] = row
    return sides


def cell(row: Row) -> str:
    """Time, half the distance of its quartiles in percent, and speed-up; or what went wrong."""
    if not row.correct:
        return "failed" if row.note else "wrong"
    assert row.wall_us is not None, "a correct row was timed"
    spread = 50 * ((row.wall_high_us or 0) - (row.wall_low_us or 0)) / row.wall_us
    time = f"{row.wall_us:,.0f}" if row.wall_us >= 1000 else f"{row.wall_us:.3g}"
    faster = "" if row.side == DENSE or row.speedup is None else f" ({row.speedup:.2f}x)"
    return f"{time} ±{spread:.0f}%{faster}"


def device_cell(row: Row) -> str:
    """Device time and speed-up, where they were measured."""
    if not row.correct or row.device_us is None:
        return ""
    faster = f" ({row.device_speedup:.2f}x)" if row.device_speedup and row.side != DENSE else ""
    return f"{row.device_us:.4g}{faster}"
