"""What `masked_conv` costs on a CUDA device that nothing was measured on, from the rates of its
mma.sync rows on an H200 and what is known of the device: an estimate, which `js.tune` replaces.

A step of K takes as long as its products by the tensor cores' rate for mma.sync; what a call takes
besides stays as it was measured. Devices of one compute capability differ: the slower ones' figures
stand for all, so that neither a sparse nor the dense side is flattered more than the other.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax

from jaxsparse.core.device import CLOCK
from jaxsparse.select.costs import Candidate
from jaxsparse.select.masked_conv.cost import Work, candidate, dense
from jaxsparse.select.masked_conv.problem import OP
from jaxsparse.select.masked_conv.reasons import USUAL_PROCESSORS, mma_channels
from jaxsparse.select.table import DENSE, Entry, Rate, Rung, TuningTable
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
#: What the rates below were measured on.
MEASURED_ON = SPEEDS["9.0"]
#: The share of the tensor cores' rate that a dense convolution of DENSE_COLUMNS outputs or more
#: reaches, of fewer in proportion, as on an H200; and what starting it takes, in microseconds.
DENSE_SHARE, DENSE_COLUMNS, DENSE_START = 0.7, 128, 7.0
#: dtype -> row -> (start, step, row_step, fill) on an H200, as in `Rate`: fitted to 12 to 16 calls
#: of each row alone (docs/kernels/masked_conv.md); they meet them within 3 to 10 % on average, 23 %
#: at worst.
_SIXTEEN_BITS = {
    "mma128n128": (7.204, 1.2419, 0.4212, 0.2573),
    "mma128n64": (7.375, 0.9958, 0.1544, 0.3109),
    "mma64n64": (7.148, 0.4352, 0.0881, 0.2188),
}
MEASURED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "bfloat16": _SIXTEEN_BITS,
    "float16": _SIXTEEN_BITS,
    "float32": {
        "mma128n128": (6.992, 1.3022, 0.2875, 0.2533),
        "mma128n64": (7.147, 1.0954, 0.0, 0.3428),
        "mma64n64": (7.084, 0.5351, 0.0, 0.2762),
    },
}

_DENSITIES = tuple((i + 1) / 24 for i in range(24))
_CHANNELS, _OUTPUTS, _TAPS = (4, 8, 16, 32, 64, 128, 256, 512), (16, 32, 64, 256), (1, 9)
_PIXELS = (2048, 16384, 131072, 1048576)


def rates(capability: str) -> tuple[Rate, ...]:
    """The rates of the mma.sync rows and of dense on a device of this compute capability."""
    speed = SPEEDS.get(capability, USUAL)
    slower = MEASURED_ON.macs * MEASURED_ON.megahertz / (speed.macs * speed.megahertz)
    found = []
    for dtype, rows in MEASURED.items():
        for name, (start, step, row_step, fill) in rows.items():
            each = round(step * slower, 4), 0.0, round(row_step * slower, 4), fill
            found.append(Rate(OP, dtype, name, start, *each))
    return tuple(found)


def dense_rate(capability: str, processors: int, dtype: str, shape: tuple[int, ...]) -> Rate:
    """The rate of XLA's convolution of this shape: taps, channels, outputs, stride."""
    speed = SPEEDS.get(capability, USUAL)
    share = DENSE_SHARE * min(shape[2] / DENSE_COLUMNS, 1.0)
    macs = speed.macs * speed.dense / (2 if dtype == "float32" else 1) * share
    step = 1e9 / (macs * processors * speed.megahertz)
    return Rate(OP, dtype, DENSE, DENSE_START, round(step, 4), 0.0, shape=shape)


@functools.cache
def estimated(device: str, capability: str, processors: int, other: TuningTable) -> TuningTable:
    """The table of a device that was never measured.

    Args:
        device: its kind.
        capability: "8.0".
        processors: its multiprocessors.
        other: the table whose entries stay where nothing is estimated: float32 at `highest`.
    """
    shapes = itertools.product(_TAPS, _CHANNELS, _OUTPUTS, (1,))
    dense_rates = tuple(
        dense_rate(capability, processors, dtype, shape) for shape in shapes for dtype in MEASURED
    )
    known = (*rates(capability), *dense_rates)
    kept = tuple(e for e in other.entries if e.op != OP or e.dtype == "highest")
    entries = tuple(e for dtype in MEASURED for e in _entries(dtype, capability, processors))
    return TuningTable(
        device=device,
        measured="nothing: estimated from an H200's rates of mma.sync; js.tune measures",
        entries=(*kept, *entries),
        tile=other.tile,
        processors=processors,
        rates=known,
    )


def _entries(dtype: str, capability: str, processors: int) -> list[Entry]:
    """Entries over a grid of shapes."""
    mine = {r.variant: r for r in rates(capability) if r.dtype == dtype}
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
        whole = dense(dense_rate(capability, processors, dtype, work.shape), work)
        static, ladder = _ladder(work, mine, whole, processors)
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
    """The estimate for JAX's CUDA device, of the kind `device`; `other` where it is a Hopper, whose
    rates are nearer, and where there is none.
    """
    try:
        found = jax.devices("cuda")[0]
    except RuntimeError:
        return other
    capability = found.compute_capability
    if capability == "9.0":
        return other
    processors = getattr(found, "core_count", USUAL_PROCESSORS)
    return estimated(device, capability, processors, other)
