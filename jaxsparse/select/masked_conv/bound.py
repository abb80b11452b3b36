"""The analytic bound of a variant of `masked_conv`, from its row, the shape of a call and the rates
of a device (DynaSpa 3.3): nothing of the variant was measured.

A step of K takes what its products take, or its copies out of L2, or its latency; a tile takes its
steps, its prologue and its result; what is left over is by wave (`roofline/bound.py`).
"""

import math

from jaxsparse.select.masked_conv.cost import NARROW_BYTES, STEP_BYTES, Work, terms
from jaxsparse.select.roofline.bound import bound
from jaxsparse.select.roofline.machine import Machine
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import Variant

#: What the kernels take of the rates, fitted to an H200's sweeps: `tensor`, of the time of the
#: products; `rows` and `columns`, of the copies of a tile's operands; `boxes`, of the rows where
#: TMA copies them; `latency` of a step, `tile` and `streams` and `splits` in microseconds: what a
#: tile takes besides, a kernel that streams, and each doubling of CTAs that share K; `result` and
#: `zeros`, of the time to write those; `prologue` of a call.
_COEFFICIENTS = Measured("roofline", "cuda")


def bound_us(
    row: Variant, work: Work, dtype: str, count: int, area: int, machine: Machine
) -> float:
    """Microseconds of a call in which `count` list tiles of `area` pixels are active."""
    f, at, sm = row.fields, _COEFFICIENTS, machine.processors
    t = terms(row, work, area, sm)
    narrow = f["box"] and work.channels * work.itemsize == NARROW_BYTES
    wide = NARROW_BYTES if narrow else STEP_BYTES
    products = f["tile_m"] * f["tile_n"] * wide / work.itemsize / (machine.macs(dtype) / sm)
    rows = at("rows") * f["tile_m"] * (at("boxes") if f["box"] else 1.0)
    copies = wide * (rows + at("columns") * f["tile_n"]) / (machine.l2 / sm)
    step = max(at("tensor") * products, copies, at("latency"))
    each = machine.copy / sm / work.itemsize
    tile = t.steps * step + at("tile") + at("result") * f["tile_m"] * f["tile_n"] / each
    active = count * area
    read = min(active * work.taps, work.pixels * work.stride) * work.channels
    weights = work.taps * work.channels * work.outputs
    moved = (work.pixels * work.outputs + read + weights) * work.itemsize
    zeros = max(work.pixels - active, 0) * work.outputs * work.itemsize if work.fills else 0
    besides = at("prologue") + at("zeros") * zeros / machine.copy
    besides += at("streams") * bool(f["stream_k"]) + at("splits") * math.log2(f["split_k"])
    streams = bool(f["stream_k"])
    return besides + bound(machine, moved, count / t.per_wave, tile, streams=streams)
