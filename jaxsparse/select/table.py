"""Tuning tables: measured ladders of variants, per device kind, shipped as data.

A ladder lists, for one shape of problem, which variant to run up to which share of active pixels.
Portfolio after DynaSpa 3.2 (few variants that together cover all masks); shapes that were not
measured take the nearest one that was.
"""

import functools
import math
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import msgspec

#: The variant that XLA runs over the whole input.
DENSE = "dense"


class Rung(msgspec.Struct, frozen=True):
    """Run `variant` while the density of the index is at most `up_to`."""

    up_to: float
    variant: str


class Entry(msgspec.Struct, frozen=True):
    """One measured problem: its features and the ladder found for it.

    `static` is the variant taken when the density is not known at trace time.
    """

    op: str
    dtype: str
    features: dict[str, float]
    static: str
    ladder: tuple[Rung, ...]

    def __hash__(self) -> int:
        return hash((self.op, self.dtype, tuple(sorted(self.features.items())), self.ladder))


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a variant costs, in microseconds: `start` a call, `step` a step of work and `tail` a
    wave of it, however full; `row_step` a step, but half for half a wave; `fill` a megabyte of the
    result that no product writes. The op says what its steps and waves are, and what `shape` of
    problem this was measured on: () serves every shape.
    """

    op: str
    dtype: str
    variant: str
    start: float
    step: float
    tail: float
    row_step: float = 0.0
    fill: float = 0.0
    shape: tuple[int, ...] = ()


class TuningTable(msgspec.Struct, frozen=True):
    """Entries for one device kind, with where they were measured. Hashable: it may be a jit key
    (`js.config(tuning=)`).

    `rates` are what a choice on the device is made from, `processors` how many multiprocessors they
    were measured on.
    """

    device: str
    measured: str
    entries: tuple[Entry, ...]
    tile: tuple[int, int] = (1, 1)
    processors: int = 1
    rates: tuple[Rate, ...] = ()

    def rates_of(self, op: str, dtype: str, shape: tuple[int, ...] = ()) -> dict[str, Rate]:
        """Variant -> rate, of `op` in this dtype, measured on the nearest shape in log distance;
        empty where nothing was measured.
        """
        found: dict[str, tuple[float, Rate]] = {}
        for rate in self.rates:
            if rate.op == op and rate.dtype == dtype:
                far = _apart(rate.shape, shape)
                if rate.variant not in found or far < found[rate.variant][0]:
                    found[rate.variant] = far, rate
        return {variant: rate for variant, (_, rate) in found.items()}

    def nearest_shape(self, op: str, dtype: str, shape: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The nearest shape in log distance on which some variant of `op` was measured in this
        dtype; () where none was.
        """
        shapes = [r.shape for r in self.rates if r.op == op and r.dtype == dtype]
        return min(shapes, key=lambda each: _apart(each, shape), default=())

    def nearest(self, op: str, dtype: str, features: Mapping[str, float]) -> Entry | None:
        """The entry of `op` whose features are nearest in log distance, same dtype first; None when
        the op has none.
        """
        same = [e for e in self.entries if e.op == op]
        same = [e for e in same if e.dtype == dtype] or same
        return min(same, key=lambda e: distance(e.features, features), default=None)

    def to_json(self) -> bytes:
        """The table as JSON, an entry or a rate a line."""
        fields = [
            f' "{name}": {_lines(value)}' for name, value in msgspec.to_builtins(self).items()
        ]
        return ("{\n" + ",\n".join(fields) + "\n}\n").encode()

    @staticmethod
    def from_json(text: bytes | str) -> "TuningTable":
        """Read a table.

        Raises:
            ValueError: when `text` is not a table, naming the field.
        """
        try:
            return msgspec.json.decode(text, type=TuningTable)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a tuning table: {error}") from error


def _lines(value: Any) -> str:
    """JSON: a list of objects with one a line, anything else on one line."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(_lines, value)) + "\n ]"
    return msgspec.json.encode(value).decode()


def distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Squared log distance of two problems' features."""
    shared = a.keys() & b.keys()
    return sum((math.log(max(a[k], 1)) - math.log(max(b[k], 1))) ** 2 for k in shared)


def _apart(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Log distance of two shapes; one of another length, as () is, is farther than any."""
    if len(a) != len(b):
        return math.inf
    return sum(math.log(max(x, 1) / max(y, 1)) ** 2 for x, y in zip(a, b, strict=True))


@functools.cache
def shipped() -> dict[str, TuningTable]:
    """Device kind -> the table that came with the package."""
    folder = resources.files("jaxsparse") / "select" / "tables"
    files = [f for f in folder.iterdir() if f.name.endswith(".json")]
    tables = [TuningTable.from_json(f.read_bytes()) for f in sorted(files, key=lambda f: f.name)]
    return {table.device: table for table in tables}


#: (device kind, table of another device) -> table, for CUDA devices that were never measured.
_ESTIMATES: list[Callable[[str, TuningTable], TuningTable]] = []


def estimate_with(make: Callable[[str, TuningTable], TuningTable]) -> None:
    """Let an op put estimates in place of another device's measurements."""
    _ESTIMATES.append(make)


def table_for(device: str, platform: str) -> TuningTable:
    """The shipped table of a device kind; where it was never measured that of the same platform's
    first device, on a GPU with what the ops estimate for it.
    """
    tables = shipped()
    if device in tables:
        return tables[device]
    other = next(t for t in tables.values() if (t.device == "cpu") == (platform == "cpu"))
    if platform == "cpu" or not device:
        return other
    for make in _ESTIMATES:
        other = make(device, other)
    return other
