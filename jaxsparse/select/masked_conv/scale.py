"""The rates of `masked_conv` on a device that was not swept, from those of one of its kind that
was: each part of a time by the rate that it waits for.

Products wait for a multiprocessor's tensor cores, zeros for memory. Of what all multiprocessors
share, and of a dense convolution, the part that the bytes alone would take scales with memory, the
rest with the clock. What a call takes besides stays as it was measured.
"""

import functools

import msgspec

from jaxsparse.select.masked_conv.cost import Work, terms
from jaxsparse.select.masked_conv.problem import OP
from jaxsparse.select.roofline.machine import Machine, machine_of
from jaxsparse.select.table import DENSE, Rate, TuningTable, base_for
from jaxsparse.select.variants import table


@functools.lru_cache(maxsize=8)
def scaled(machine: Machine) -> TuningTable:
    """The table of a device with tensor-core kernels of compute capability 9.0."""
    other = base_for(machine.device, "cuda")
    return scale(other, machine_of(other), machine)


def scale(other: TuningTable, its: Machine, mine: Machine) -> TuningTable:
    """`other`, measured on the machine `its`, with the rates of `mine`."""
    rates = tuple(_rate(r, its, mine) if r.op == OP and r.shape else r for r in other.rates)
    return msgspec.structs.replace(
        other,
        device=mine.device,
        measured=f"estimated from {its.device}: {mine.measured}; js.tune measures",
        processors=mine.processors,
        rates=rates,
    )


def _rate(rate: Rate, its: Machine, mine: Machine) -> Rate:
    dtype = rate.dtype
    taps, channels, outputs, stride = rate.shape
    work = Work(taps, channels, outputs, 4 if dtype == "float32" else 2, 1, stride)
    memory = its.copy / mine.copy
    start = rate.start
    bytes_us = (channels * stride + outputs) * work.itemsize / its.copy  # of a pixel
    if rate.variant == DENSE:
        took = rate.step * work.macs / 1e9
        ratio = _mixed(bytes_us, took, memory, its.macs(dtype) / mine.macs(dtype))
        return _replaced(rate, start, rate.step * ratio, 0.0, 0.0)
    row = table(OP, "cuda").get(rate.variant)
    more = mine.slower(dtype, rate.variant)
    each = mine.processors / its.processors
    tensor = its.macs(dtype) / mine.macs(dtype) * each
    shared = its.l2 / mine.l2 * each
    if row is not None and rate.row_step:
        t = terms(row, work, 1, its.processors)
        took = t.steps * rate.row_step / t.per_wave
        shared = _mixed(bytes_us, took, memory * each, shared)
    row_step = rate.row_step * shared * more
    return _replaced(rate, start, rate.step * tensor * more, row_step, rate.fill * memory)


def _mixed(least: float, took: float, memory: float, clock: float) -> float:
    """How many times longer: by memory for `least` of `took`, by the clock for the rest."""
    share = min(least / took, 1.0) if took > 0 else 0.0
    return share * memory + (1.0 - share) * clock


def _replaced(rate: Rate, start: float, step: float, row_step: float, fill: float) -> Rate:
    values = {"start": start, "step": step, "row_step": row_step, "fill": fill}
    return msgspec.structs.replace(rate, **{k: round(v, 4) for k, v in values.items()})
