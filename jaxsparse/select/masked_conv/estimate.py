"""What `masked_conv` costs on a CUDA device that nothing was measured on, from the rates of its
mma.sync rows on an H200 and what is known of the device, or was calibrated: an estimate, which
`js.tune` replaces.

A step of K takes as long as its products by the tensor cores' rate for mma.sync; what a call takes
besides stays as it was measured. Devices of one compute capability differ: the slower ones' figures
stand for all, so that neither a sparse nor the dense side is flattered more than the other.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import msgspec

from jaxsparse.core.device import CLOCK
from jaxsparse.core.dtypes import DTYPES
from jaxsparse.select.costs import Candidate
from jaxsparse.select.masked_conv.cost import Work, candidate, dense
from jaxsparse.select.masked_conv.problem import OP
from jaxsparse.select.masked_conv.reasons import USUAL_PROCESSORS, mma_channels
from jaxsparse.select.masked_conv.scale import scaled
from jaxsparse.select.roofline.calibration import calibrated
from jaxsparse.select.roofline.machine import Machine, by_ratio, machine_of
from jaxsparse.select.table import DENSE, Entry, Measured, Rate, Rung, TuningTable, base_for
from jaxsparse.select.variants import table


class Speed(NamedTuple):
    """A kind of device: 16-bit multiply-adds a cycle and multiprocessor by mma.sync with float32
    sums (TF32 does half), and cycles a microsecond.
    """

    macs: float
    megahertz: float
    dense: float = 1.0  # what other instructions give a dense convolution, times mma.sync's rate


#: By compute capability, from data sheets; of Hopper what mma.sync reaches, which is not wgmma.
SPEEDS = {
    "8.0": Speed(1024, 1410),
    "8.6": Speed(256, 1700),
    "8.7": Speed(512, 1300),
    "8.9": Speed(256, 2500),
    "9.0": Speed(1270, CLOCK),
    "10.0": Speed(1024, 1850, dense=4.0),
    "10.3": Speed(1024, 1850, dense=4.0),
    "12.0": Speed(256, 2400),
}
#: Of a device that is not listed.
USUAL = Speed(256, 1700)
#: What the table's rates of mma.sync rows were measured on.
MEASURED_ON = SPEEDS["9.0"]
#: As the table of an H200 names the rates of its mma.sync rows, for they do not stand beside its
#: other rows: fitted to 12 to 16 calls of each row alone (docs/kernels/masked_conv.md); they meet
#: them within 3 to 10 % on average, 23 % at worst. Its constants say what share of the tensor
#: cores' rate a dense convolution of `dense_columns` outputs or more reaches (`dense_share`), of
#: fewer in proportion, and what starting it takes, in microseconds (`dense_start`).
MMA = "masked_conv_mma"
_CONSTANTS = Measured(MMA, "cuda")
_KINDS = tuple(sorted(DTYPES))

_DENSITIES = tuple((i + 1) / 24 for i in range(24))
_CHANNELS, _OUTPUTS, _TAPS = (4, 8, 16, 32, 64, 128, 256, 512), (16, 32, 64, 256), (1, 9)
_PIXELS = (2048, 16384, 131072, 1048576)


def rates(capability: str, other: TuningTable, machine: Machine) -> tuple[Rate, ...]:
    """The rates of the mma.sync rows on a device of this compute capability, from those that
    `other` holds of them: steps by the tensor cores' rate, zeros by that of memory.
    """
    speed = SPEEDS.get(capability, USUAL)
    slower = MEASURED_ON.macs * MEASURED_ON.megahertz / (speed.macs * speed.megahertz)
    memory = machine_of(other).copy / machine.copy
    found = []
    for rate in (r for r in other.rates if r.op == MMA):
        times = slower * machine.slower(rate.dtype, rate.variant)
        step, row_step = round(rate.step * times, 4), round(rate.row_step * times, 4)
        fill = round(rate.fill * memory, 4)
        found.append(msgspec.structs.replace(rate, op=OP, step=step, row_step=row_step, fill=fill))
    return tuple(found)


def dense_rate(capability: str, machine: Machine, dtype: str, shape: tuple[int, ...]) -> Rate:
    """The rate of XLA's convolution of this shape: taps, channels, outputs, stride; that of its
    bytes where they take longer.
    """
    taps, channels, outputs, stride = shape
    share = min(outputs / _CONSTANTS("dense_columns"), 1.0)
    if machine.own:
        macs = machine.macs(dtype)
    else:
        speed = SPEEDS.get(capability, USUAL)
        macs = speed.macs * speed.dense / (2 if dtype == "float32" else 1)
        macs *= machine.processors * speed.megahertz * _CONSTANTS("dense_share")
    moved = (channels * stride + outputs) * (4 if dtype == "float32" else 2)
    least = moved / (machine.copy * taps * channels * outputs)
    step = 1e9 * max(1 / (macs * share), least)
    return Rate(OP, dtype, DENSE, _CONSTANTS("dense_start"), round(step, 4), 0.0, shape=shape)


@functools.lru_cache(maxsize=8)
def estimated(capability: str, machine: Machine) -> TuningTable:
    """The table of a device that was never measured, of this compute capability ("8.0"). Entries of
    the measured device's table stay where nothing is estimated: float32 at `highest`.
    """
    other, processors = base_for(machine.device, "cuda"), machine.processors
    shapes = itertools.product(_TAPS, _CHANNELS, _OUTPUTS, (1,))
    dense_rates = tuple(
        dense_rate(capability, machine, dtype, shape) for shape in shapes for dtype in _KINDS
    )
    mine = rates(capability, other, machine)
    kept = tuple(e for e in other.entries if e.op != OP or e.dtype == "highest")
    entries = tuple(e for dtype in _KINDS for e in _entries(dtype, mine, capability, machine))
    return TuningTable(
        device=machine.device,
        measured=f"estimated from rates of mma.sync of {other.device}: {machine.measured}; "
        "js.tune measures",
        entries=(*kept, *entries),
        tile=other.tile,
        processors=processors,
        rates=(*mine, *dense_rates),
    )


def _entries(dtype: str, known: tuple[Rate, ...], capability: str, machine: Machine) -> list[Entry]:
    """Entries over a grid of shapes."""
    mine = {r.variant: r for r in known if r.dtype == dtype}
    itemsize = 4 if dtype == "float32" else 2
    found = []
    for channels, outputs, taps, pixels in itertools.product(_CHANNELS, _OUTPUTS, _TAPS, _PIXELS):
        work = Work(taps, channels, outputs, itemsize, pixels, 1)
        features: dict[str, float] = {
            "pixels": pixels,
            "taps": taps,
            "channels": channels,
            "outputs": outputs,
            "groups": 1,
            "stride": 1,
        }
        whole = dense(dense_rate(capability, machine, dtype, work.shape), work)
        static, ladder = _ladder(work, mine, whole, machine.processors)
        found.append(Entry(OP, dtype, features, static, ladder))
    return found


def _ladder(
    work: Work, mine: dict[str, Rate], whole: Candidate, processors: int
) -> tuple[str, tuple[Rung, ...]]:
    """The static choice, for a density of .3, and the ladder over pixels."""
    if work.channels < mma_channels(work.itemsize):
        return "direct", (Rung(1.0, "direct"),)
    rows = table(OP, "cuda")
    offered: list[Candidate] = [
        candidate(rows[name], rate, work, 1, processors)
        for name, rate in mine.items()
        if name in rows
    ]
    every = [*offered, whole]

    def cheapest(density: float, among: list[Candidate]) -> str:
        count = math.ceil(density * work.pixels)
        return min(among, key=lambda c: c.at(count)).variant

    rungs: list[Rung] = []
    for density in _DENSITIES:
        name = cheapest(density, every)
        if rungs and rungs[-1].variant == name:
            rungs.pop()
        rungs.append(Rung(density, name))
    return cheapest(0.3, every), tuple(rungs)


def of_this_device(device: str, other: TuningTable) -> TuningTable:
    """The estimate for JAX's CUDA device, of the kind `device`: of a Hopper from the rates of
    `other`, of others from those that it holds of mma.sync; `other` where there is no device.
    """
    try:
        found = jax.devices("cuda")[0]
    except RuntimeError:
        return other
    capability = found.compute_capability
    processors = getattr(found, "core_count", USUAL_PROCESSORS)
    reference = machine_of(other)
    machine = calibrated(device) or by_ratio(device, processors, reference)
    return table_of(capability, machine)


def table_of(capability: str, machine: Machine) -> TuningTable:
    """The estimate for a device of these rates."""
    return scaled(machine) if capability == "9.0" else estimated(capability, machine)
