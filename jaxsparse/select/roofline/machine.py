"""The rates of a device: measured, or scaled from those of another by the ratio of data sheets."""

import functools
import re
from importlib import resources

import msgspec

from jaxsparse.select.table import TuningTable

#: The constants of a table that say what its device reaches.
MACHINE = "machine"


class Machine(msgspec.Struct, frozen=True):
    """The rates that a whole device reaches: `copy` and `l2` in bytes per microsecond, `half` and
    `tf32` in multiply-adds per microsecond.

    Attributes:
        device: its kind, as JAX names it.
        processors: multiprocessors of a GPU, cores of a CPU.
        copy: memory bandwidth of a copy, bytes read plus bytes written.
        l2: the same in the cache that all processors share.
        half: 16-bit multiply-adds; on a CPU, those of float32.
        tf32: float32 multiply-adds in TF32.
        launch: microseconds between the starts of two empty kernels.
        measured: where the rates come from.
        own: whether they were measured on this machine by `jaxsparse calibrate`.
        variants: (dtype, variant, factor): how many times longer than the rates above predict the
            variant takes.
    """

    device: str
    processors: int
    copy: float
    l2: float
    half: float
    tf32: float
    launch: float
    measured: str = ""
    own: bool = False
    variants: tuple[tuple[str, str, float], ...] = ()

    def macs(self, dtype: str) -> float:
        """Multiply-adds per microsecond of operands of this dtype."""
        return self.tf32 if dtype == "float32" else self.half

    def slower(self, dtype: str, variant: str) -> float:
        """How many times longer a variant takes than the rates predict: the measured factor, or
        the median of those measured for its dtype, or 1 without any.
        """
        mine = {v: times for d, v, times in self.variants if d == dtype}
        if variant in mine or not mine:
            return mine.get(variant, 1.0)
        ordered = sorted(mine.values())
        return ordered[len(ordered) // 2]


class Published(msgspec.Struct, frozen=True):
    """A device in the data sheets.

    Attributes:
        name: words of the device's name.
        capability: compute capability.
        processors: multiprocessors.
        teraflops: 10^12 operations per second of the tensor cores in bfloat16 with sums in float32,
            without structured sparsity.
        terabytes: memory bandwidth in 10^12 bytes per second.
    """

    name: str
    capability: str
    processors: int
    teraflops: float
    terabytes: float


@functools.cache
def sheets() -> tuple[Published, ...]:
    """The data sheets."""
    file = resources.files("jaxsparse") / "select" / "roofline" / "published.json"
    return msgspec.json.decode(file.read_bytes(), type=tuple[Published, ...])


def published(device: str) -> Published | None:
    """The data sheet of a device kind: all words of its name occur in `device`, and of several such
    sheets it is the one with the longest name. None where there is none.
    """
    words = set(re.split(r"[ -]+", device))
    able = [row for row in sheets() if set(row.name.split()) <= words]
    return max(able, key=lambda row: len(row.name.split()), default=None)


def machine_of(table: TuningTable) -> Machine:
    """The device that a table was measured on.

    Raises:
        KeyError: for a table that does not hold the rates of its device.
    """
    at = {c.name: c.value[0] for c in table.constants if c.op == MACHINE}
    copy, l2, half, tf32, launch = (at[n] for n in ("copy", "l2", "half", "tf32", "launch"))
    return Machine(table.device, table.processors, copy, l2, half, tf32, launch, table.measured)


def by_ratio(device: str, processors: int, reference: Machine) -> Machine:
    """The rates of a device that was not measured: those of `reference`, times the ratio of the two
    data sheets. For a device without a data sheet, times the ratio of multiprocessors alone.
    """
    mine, other = published(device), published(reference.device)
    each = processors / reference.processors
    tensor, memory = each, 1.0
    if mine is not None and other is not None:
        tensor = mine.teraflops / other.teraflops * processors / mine.processors
        memory = mine.terabytes / other.terabytes
    return Machine(
        device,
        processors,
        reference.copy * memory,
        reference.l2 * tensor,  # it runs at the clock of the multiprocessors
        reference.half * tensor,
        reference.tf32 * tensor,
        reference.launch,
        f"rates of {reference.device} by the ratio of published rates",
    )
