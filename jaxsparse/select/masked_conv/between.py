"""Rates of a shape of `masked_conv` that was not measured, from those of all shapes that were.

Each variant's rates are a mean, weighted by how near the shapes are. Leaving out one measured shape
after the other, the choice by such means takes 1.02 (16 bits) and 1.03 times (TF32) as long as the
best on average; that by the nearest shape's rates takes 1.05 times (benchmarks/masked_conv/
left_out.py).

Those of XLA's convolution differ more between shapes, by up to eight times. What explains most of
it is common to all: products of channels and outputs in whole blocks, and the bytes of x, of the
result, and of the pass that the mask takes over it. So the mean is of measured over modelled times.
"""

import functools
import math
from collections.abc import Mapping

import msgspec

from jaxsparse.select.masked_conv.cost import STEP_BYTES, of_taps
from jaxsparse.select.masked_conv.problem import OP
from jaxsparse.select.roofline.machine import Machine, machine_of
from jaxsparse.select.table import DENSE, Measured, Rate, Same, TuningTable, base_for
from jaxsparse.select.variants import Variant, table

#: Shapes at a log distance d, summed over taps, channels, outputs and stride, weigh
#: 1 / (NEAR + d)**STEEP.
NEAR, STEEP = 0.2, 3
#: What a dense convolution computes in whole blocks: channels and outputs.
BLOCK = 64, 128
_MEASURED = Measured(OP, "cuda")
_TILE = "tile_m", "tile_n", "stages", "split_k", "stream_k", "box"
_RATES = ("start", "step", "row_step", "fill")


def rates_for(tuning: TuningTable, dtype: str, shape: tuple[int, ...]) -> dict[str, Rate]:
    """Variant -> rate, for calls of `shape`: taps, channels, outputs, stride. Of a shape that was
    measured they are its own, and of variants that were measured on others only, the nearest's.
    """
    rates = _rates_for(Same(tuning), dtype, shape)
    rows, machine = table(OP, "cuda"), machine_of(base_for(tuning.device, "cuda"))
    return {**_sharing(rows, rates, machine.macs(dtype) / machine.processors), **rates}


def _sharing(
    rows: Mapping[str, Variant], rates: Mapping[str, Rate], macs: float
) -> dict[str, Rate]:
    """Rates of the variants that share weights between two CTAs, and were not measured on their
    own: a step of the same tile takes `shared_weights` of its time, and no less than its products
    by `macs` multiply-adds a microsecond and multiprocessor.
    """
    found = {}
    single = {
        _tile(r): rates[n] for n, r in rows.items() if n in rates and r.fields.get("cluster") == 1
    }
    for name, row in rows.items():
        rate = single.get(_tile(row)) if row.fields.get("cluster") == 2 else None
        if rate is None or (took := rate.step + rate.row_step) <= 0:
            continue
        itemsize = 4 if rate.dtype == "float32" else 2
        products = row.fields["tile_m"] * row.fields["tile_n"] * STEP_BYTES / itemsize
        less = max(_MEASURED("shared_weights"), min(products / macs / took, 1.0))
        step, row_step = round(rate.step * less, 4), round(rate.row_step * less, 4)
        found[name] = msgspec.structs.replace(rate, variant=name, step=step, row_step=row_step)
    return found


def _tile(row: Variant) -> tuple[object, ...]:
    """What rows that differ in their cluster alone have in common."""
    return tuple(row.fields.get(name) for name in _TILE)


@functools.lru_cache(maxsize=1024)
def _rates_for(same: Same, dtype: str, shape: tuple[int, ...]) -> dict[str, Rate]:
    tuning = same.table
    nearest = tuning.rates_of(OP, dtype, shape)
    if 0 in shape or tuning.nearest_shape(OP, dtype, shape) in (shape, ()):
        return nearest
    found: dict[str, list[Rate]] = {}
    for rate in tuning.rates:
        if rate.op == OP and rate.dtype == dtype and len(rate.shape) == len(shape):
            found.setdefault(rate.variant, []).append(rate)
    between = {name: _between(tuning, rates, shape) for name, rates in found.items()}
    return {**nearest, **between}


def _between(tuning: TuningTable, rates: list[Rate], shape: tuple[int, ...]) -> Rate:
    weights = [1.0 / (NEAR + _apart(rate.shape, shape)) ** STEEP for rate in rates]
    if rates[0].variant == DENSE:
        machine, kind = machine_of(base_for(tuning.device, "cuda")), rates[0].dtype
        mine = dense_step(machine, kind, shape)
        logs = [math.log(max(r.step, 1e-6) / dense_step(machine, kind, r.shape)) for r in rates]
        step = mine * math.exp(_mean(weights, logs))
        start = _mean(weights, [r.start for r in rates])
        return Rate(OP, kind, DENSE, round(start, 4), round(step, 4), 0.0, shape=shape)
    values = {n: round(_mean(weights, [getattr(r, n) for r in rates]), 4) for n in _RATES}
    return msgspec.structs.replace(rates[0], shape=shape, **values)


def dense_step(machine: Machine, dtype: str, shape: tuple[int, ...]) -> float:
    """Microseconds that XLA's convolution and the mask take for a billion multiply-adds, as far as
    products and bytes alone decide.
    """
    taps, channels, outputs, stride = shape
    itemsize = 4 if dtype == "float32" else 2
    block_in, block_out = BLOCK
    padded = taps * of_taps(taps) * _up(channels, block_in) * _up(outputs, block_out)
    read = (channels * stride + outputs) * itemsize / machine.copy
    masked = 2 * outputs * itemsize / machine.copy
    pixel = max(padded / machine.macs(dtype), read) + masked
    return 1e9 * pixel / (taps * channels * outputs)


def _up(value: int, block: int) -> int:
    return -(-value // block) * block


def _mean(weights: list[float], values: list[float]) -> float:
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def _apart(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    return sum(abs(math.log(max(x, 1) / max(y, 1))) for x, y in zip(a, b, strict=True))
