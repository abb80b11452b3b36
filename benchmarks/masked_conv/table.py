"""The figures of benchmarks/results/images/masked_conv_<device>.md: every measured case of this
machine's platform.

    python benchmarks/masked_conv/table.py [--out benchmarks/results/images] [--case NAME ...] \\
        [--samples N]

On a CPU densities are of tiles, and the geometric means over the cases are printed at each; on a
GPU they are of pixels, for blobs, edges and rectangles, in bfloat16 and TF32. Exit status 1 when an
output was wrong.
"""

import argparse
import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

from jaxsparse.bench.command import find_cases, platform_tag, run
from jaxsparse.bench.masked_conv.run import Plan
from jaxsparse.bench.report.plot import plot_report
from jaxsparse.bench.report.report import Report
from jaxsparse.bench.report.rows import DENSE
from jaxsparse.bench.report.table import show_report

PLANS = {
    "cpu": (Plan(densities=(0.1, 0.3, 0.5, 1.0), by="tile"), ["blobs"], ["float32"]),
    "gpu": (
        Plan(densities=(0.1, 0.3, 0.5, 1.0), device=True),
        ["blobs", "edges", "rectangles"],
        ["bfloat16", "float32"],
    ),
}


def geometric_means(report: Report) -> dict[tuple[str, str, str, int], float]:
    """(mask, dtype, side, number of the density) -> geometric mean of the speed-ups over the
    cases.
    """
    found: dict[tuple[str, str, str, int], list[float]] = {}
    for (_, mask, dtype), rows in report.groups():
        seen: dict[str, int] = {}
        for row in rows:
            number = seen.get(row.side, 0)
            seen[row.side] = number + 1
            if row.side != DENSE and row.correct and row.speedup is not None:
                found.setdefault((mask, dtype, row.side, number), []).append(row.speedup)
    return {key: float(np.exp(np.mean(np.log(values)))) for key, values in found.items()}


def main() -> int:
    """Measure, print, write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/images"))
    parser.add_argument("--case", action="append", help="a case or a tag; default: the platform's")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--variants", action="store_true", help="every variant, too")
    given = parser.parse_args()
    tag = platform_tag()
    plan, masks, dtypes = PLANS[tag]
    changes = {} if given.variants else {"variants": ()}
    if given.samples:
        changes["samples"] = given.samples
    plan = dataclasses.replace(plan, **changes)
    report = run(find_cases(given.case or [tag]), masks, dtypes, plan)
    console = Console()
    show_report(report, console)
    for (mask, dtype, side, number), mean in geometric_means(report).items():
        of = f"{plan.by} density {plan.densities[number]:g}"
        console.print(f"{mask}, {dtype}, {side}, {of}: geometric mean {mean:.2f}x")
    device = report.provenance.device.lower().replace("(r)", "")
    device = re.sub(r"[^a-z0-9]+", "_", device).strip("_")
    given.out.mkdir(parents=True, exist_ok=True)
    stem = given.out / f"masked_conv_{device}"
    report.write(stem.with_suffix(".md"), "markdown")
    report.write(stem.with_suffix(".json"), "json")
    plot_report(report, stem.with_suffix(".png"))
    return 0 if report.correct else 1


if __name__ == "__main__":
    sys.exit(main())
