"""How well rates between shapes choose: each measured shape of the H200's shipped table is left out
in turn, and a variant is chosen by the rates of the others.

    python benchmarks/masked_conv/left_out.py

The time of a choice is what the shape's own rates say of it, over the least of all variants, at
five densities and four sizes; variants that gather, without their lists. "between" takes the
weighted mean over shapes (`jaxsparse/select/masked_conv/between.py`), "nearest" the nearest shape.
The error of a dense convolution's time is that of its logarithm. Needs a build with the CUDA
kernels' tables, and no GPU.
"""

import itertools
import math
import sys
from collections.abc import Iterator

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from jaxsparse.select.masked_conv.between import rates_for
from jaxsparse.select.masked_conv.cost import Work, candidate, dense
from jaxsparse.select.table import DENSE, Rate, TuningTable, shipped
from jaxsparse.select.variants import table

OP, DEVICE = "masked_conv", "NVIDIA H200"
PIXELS, DENSITIES = (4_000, 20_000, 100_000, 400_000), (0.1, 0.3, 0.5, 0.8, 1.0)
Shape = tuple[int, ...]


def without(tuning: TuningTable, shape: Shape) -> TuningTable:
    """The table without what was measured on a shape."""
    return msgspec.structs.replace(tuning, rates=tuple(r for r in tuning.rates if r.shape != shape))


def rates_by(way: str, tuning: TuningTable, dtype: str, shape: Shape) -> dict[str, Rate]:
    """The rates that a call of the shape would be chosen by."""
    if way == "between":
        return rates_for(tuning, dtype, shape)
    near = tuning.nearest_shape(OP, dtype, shape)
    return {n: r for n, r in tuning.rates_of(OP, dtype, shape).items() if r.shape == near}


def judged(tuning: TuningTable, dtype: str, way: str) -> Iterator[tuple[list[float], float]]:
    """Of each shape and size: the times of the choices over the best, and dense's error."""
    rows, processors = table(OP, "cuda"), tuning.processors
    shapes = sorted({r.shape for r in tuning.rates if (r.op, r.dtype) == (OP, dtype) and r.shape})
    for shape, pixels in itertools.product(shapes, PIXELS):
        taps, channels, outputs, stride = shape
        work = Work(taps, channels, outputs, 4 if dtype == "float32" else 2, pixels, stride)
        own = rates_by("nearest", tuning, dtype, shape)
        given = rates_by(way, without(tuning, shape), dtype, shape)
        names = [n for n in own if n in rows and not rows[n].fields.get("box")]
        true = {n: candidate(rows[n], own[n], work, 1, processors) for n in names}
        guess = {n: candidate(rows[n], given[n], work, 1, processors) for n in names if n in given}
        found = []
        for count in (round(d * pixels) for d in DENSITIES if guess):
            chosen = min(guess, key=lambda n, count=count: guess[n].at(count))
            best = min(c.at(count) for c in true.values())
            found.append(true[chosen].at(count) / best)
        error = math.log(dense(given[DENSE], work).at(0) / dense(own[DENSE], work).at(0))
        yield found, abs(error)


def main() -> int:
    """Print the table."""
    if not table(OP, "cuda"):
        print("this build has no CUDA kernels, whose tables are needed", file=sys.stderr)
        return 1
    shown = Table("dtype", "rates", "times the best: mean", "90 %", "worst", "dense: median error")
    for dtype, way in itertools.product(("bfloat16", "float32"), ("nearest", "between")):
        choices, errors = zip(*judged(shipped()[DEVICE], dtype, way), strict=True)
        times = np.concatenate(choices)
        figures = times.mean(), np.quantile(times, 0.9), times.max(), np.median(errors)
        shown.add_row(dtype, way, *(f"{v:.3f}" for v in figures))
    Console(width=100).print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
