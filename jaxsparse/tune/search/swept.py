"""The space of the shipped sweeps: the times of every variant of `masked_conv` on masks of many
densities, by the rates that were fitted to an H200's sweeps; what a search is judged on without a
GPU.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from jaxsparse.select.masked_conv.bound import bound_us
from jaxsparse.select.masked_conv.cost import Work, candidate
from jaxsparse.select.roofline.machine import machine_of
from jaxsparse.select.table import DENSE, TuningTable
from jaxsparse.select.variants import table

DENSITIES = tuple(round(0.025 * i, 3) for i in range(1, 41))
#: As larger tiles see the pixels of a mask: 1 - (1 - density) ** grain is the share of 8x8 tiles.
GRAINS = (1.0, 2.0, 8.0)
#: What the cost model is told of a variant.
FIELDS = ("tile_m", "tile_n", "box", "split_k", "stream_k")


@dataclasses.dataclass(frozen=True)
class Space:
    """One problem: microseconds and bounds float[variants, masks], features of every cell."""

    name: str
    variants: tuple[str, ...]
    times: np.ndarray
    bounds: np.ndarray
    features: np.ndarray


def spaces(known: TuningTable, dtype: str, pixels: int = 25600) -> Iterator[Space]:
    """A space for each shape of the table's rates, of convolutions with `pixels` outputs and at
    least eight variants.
    """
    rows, machine = table("masked_conv", "cuda"), machine_of(known)
    mine = [r for r in known.rates if r.op == "masked_conv" and r.dtype == dtype]
    for shape in sorted({r.shape for r in mine}):
        rates = [r for r in mine if r.shape == shape and r.variant not in (DENSE,)]
        if len(rates) < 8:
            continue
        taps, channels, outputs, stride = shape
        work = Work(taps, channels, outputs, 4 if dtype == "float32" else 2, pixels, stride)
        masks = [(d, grain) for d in DENSITIES for grain in GRAINS]
        times = np.empty((len(rates), len(masks)))
        bounds, features = times.copy(), np.empty((*times.shape, len(FIELDS) + 4))
        for v, rate in enumerate(rates):
            row = rows[rate.variant]
            for m, (density, grain) in enumerate(masks):
                area, count = 1, math.ceil(pixels * density)
                if row.fields["box"]:
                    area, count = 64, math.ceil(pixels / 64 * (1 - (1 - density) ** grain))
                each = candidate(row, rate, work, area, known.processors)
                times[v, m] = each.at(count)
                bounds[v, m] = bound_us(row, work, dtype, count, area, machine)
                facts = [float(row.fields[name]) for name in FIELDS]
                features[v, m] = [v, density, grain, count * area / pixels, *facts]
        names = tuple(rate.variant for rate in rates)
        yield Space("x".join(map(str, shape)), names, times, bounds, features)
