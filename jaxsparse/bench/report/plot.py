"""Speed-up over density, the crossover marked: one panel for each case, mask and dtype."""

import math
from pathlib import Path

from jaxsparse.bench.report.crossover import crossovers
from jaxsparse.bench.report.report import Report
from jaxsparse.bench.report.rows import DENSE, by_side

COLUMNS = 3


def plot_report(report: Report, path: str | Path) -> None:
    """Write the picture; the suffix (.png, .svg, .pdf) names its format, and its margin says where
    it was measured.

    Solid lines are over pixel density, dotted ones over tile density; a ring marks where a side
    stops being faster.

    Raises:
        ImportError: without matplotlib.
    """
    from matplotlib.figure import Figure

    groups = list(report.groups())
    columns = max(1, min(COLUMNS, len(groups)))
    lines = max(1, math.ceil(len(groups) / columns))
    figure = Figure(figsize=(5.5 * columns, 4.2 * lines + 0.8), layout="constrained")
    for number, ((case, mask, dtype), rows) in enumerate(groups):
        axes = figure.add_subplot(lines, columns, number + 1)
        axes.axhline(1.0, color="black", linewidth=0.8)
        sides = (item for item in by_side(rows).items() if item[0] != DENSE)
        for colour, (side, found) in enumerate(sides):
            known = [r for r in found.values() if r.correct and r.speedup is not None]
            if not known:
                continue
            speedups = [r.speedup or math.nan for r in known]
            style = {
                "color": f"C{colour % 10}",
                "linewidth": 2.0 if side.startswith("ours") else 1.0,
            }
            axes.plot([r.pixel_density for r in known], speedups, marker=".", label=side, **style)
            if any(r.tile_density != r.pixel_density for r in known):
                axes.plot([r.tile_density for r in known], speedups, linestyle=":", **style)
            at, _ = crossovers(known)
            if at is not None and 0 < at < math.inf:
                axes.plot([at], [1.0], marker="o", fillstyle="none", color=f"C{colour % 10}")
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}x")
        axes.set(
            title=f"{rows[0].op} {case}\n{dtype}, {mask}, tile {rows[0].tile}",
            xlabel="density (solid: pixels, dotted: tiles)",
            ylabel="times faster than XLA dense",
        )
        if axes.lines[1:]:
            axes.legend(fontsize="x-small")
    where = report.provenance
    figure.suptitle(
        f"{where.device}; {where.date}; commit {where.commit or '?'}; jax {where.versions['jax']}",
        fontsize="small",
    )
    figure.savefig(path)
