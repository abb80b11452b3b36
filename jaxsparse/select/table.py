"""Tuning tables: what was measured on one kind of device, shipped as data: ladders of variants,
rates, and constants.

A ladder lists, for one shape of problem, which variant to run up to which share of active pixels.
Portfolio after DynaSpa 3.2 (few variants that together cover all masks); shapes that were not
measured take the nearest one that was.
"""

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jaxsparse.core.device import device_kind
from jaxsparse.select.rows import Constant as Constant
from jaxsparse.select.rows import Entry as Entry
from jaxsparse.select.rows import Rate as Rate
from jaxsparse.select.rows import Rung as Rung
from jaxsparse.version import __version__

#: The variant that XLA runs over the whole input.
DENSE = "dense"
#: What a table may hold.
MAX_TILE, MAX_PROCESSORS = 1024, 2**16
#: What a file of a table begins with, and the version of its fields.
FORMAT, SCHEMA = "jaxsparse tuning table", 2


class TuningTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured on one kind of device. Hashable: it may be a jit key
    (`js.config(tuning=)`).

    `a | b` combines two tables; where both hold an entry, that of b is taken. `save` writes a table
    to a file and `load` reads it.

    Attributes:
        device: the kind, as JAX names it; "cpu" is every CPU.
        measured: when, where and how.
        entries: ladders, for choices while tracing and by `lax.switch`.
        tile: the tile of an index for which the user gives none.
        processors: multiprocessors that the rates were measured on.
        rates: of the variants, from which a choice on the device is made.
        constants: of costs and rules. An op takes them from its device's own table, shipped,
            calibrated or estimated, and never from `js.config(tuning=)`.
        format, schema, library: what the file is, the version of its fields, and of the library
            whose kernels were measured.
    """

    device: str
    measured: str
    entries: tuple[Entry, ...]
    tile: tuple[int, int] = (1, 1)
    processors: int = 1
    rates: tuple[Rate, ...] = ()
    constants: tuple[Constant, ...] = ()
    format: str = FORMAT
    schema: int = SCHEMA
    library: str = __version__

    def __repr__(self) -> str:
        sizes = f"{len(self.entries)} entries, {len(self.rates)} rates"
        return f"TuningTable(device={self.device!r}, {sizes}, tile={self.tile})"

    def __or__(self, other: "TuningTable") -> "TuningTable":
        """Both tables: an entry, rate or constant of `other` takes the place of an equal one.

        Raises:
            ValueError: for tables of different devices, or of rates on different numbers of
                multiprocessors.
        """
        if not isinstance(other, TuningTable):
            return NotImplemented
        if self.device != other.device:
            raise ValueError(
                f"tables of {self.device!r} and {other.device!r}: only those of one device combine"
            )
        if self.rates and other.rates and self.processors != other.processors:
            raise ValueError(
                f"rates on {self.processors} and {other.processors} multiprocessors do not combine"
            )
        return TuningTable(
            device=self.device,
            measured="; ".join(dict.fromkeys((other.measured, self.measured))),
            entries=_joined(self.entries, other.entries, _entry_key),
            tile=other.tile if other.entries else self.tile,
            processors=other.processors if other.rates else self.processors,
            rates=_joined(self.rates, other.rates, _rate_key),
            constants=_joined(self.constants, other.constants, _constant_key),
            library=other.library,
        )

    def __post_init__(self) -> None:
        for side in self.tile:
            if not 1 <= side <= MAX_TILE:
                raise ValueError(f"tile is {self.tile}; it takes sides from 1 to {MAX_TILE}")
        if not 1 <= self.processors <= MAX_PROCESSORS:
            raise ValueError(f"processors is {self.processors}; it takes 1 to {MAX_PROCESSORS}")

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
            ValueError: when `text` is not a table, naming the field; when its fields are those of
                an older or newer version.
        """
        try:
            head = msgspec.json.decode(text, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not a tuning table: {error}") from error
        if head.format != FORMAT:
            found = f"format={head.format!r}" if head.format else "no format"
            raise ValueError(f"not a tuning table: it has {found}, a table has {FORMAT!r}")
        if head.schema != SCHEMA:
            age = "older" if head.schema < SCHEMA else "newer"
            raise ValueError(
                f"a tuning table of schema {head.schema}, which is {age} than {SCHEMA}: "
                "measure again with js.tune"
            )
        try:
            return msgspec.json.decode(text, type=TuningTable)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not a tuning table: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the table to a file that `load` reads, whole or not at all.

        Raises:
            FileNotFoundError: for a folder that does not exist, naming it.
            OSError: for a file that cannot be written.
        """
        folder = Path(path).absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"path={str(path)!r}: there is no folder {str(folder)!r}")
        part = Path(f"{path}.{os.getpid()}.part")
        part.write_bytes(self.to_json())
        part.replace(path)

    @staticmethod
    def load(path: str | Path, device: str | None = None) -> "TuningTable":
        """Read a table that `save` wrote.

        Args:
            path: of the file.
            device: the kind of device that the table must be of, as JAX names it ("cpu" for every
                CPU); None accepts any, for a look at another machine's table.

        Raises:
            OSError: when the file cannot be read.
            ValueError: for a file that is not a table, is cut off, or has another schema; for a
                table of another device, or of another version of the library, whose kernels have
                other rates.
        """
        try:
            found = TuningTable.from_json(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if device is not None and found.device != device:
            raise ValueError(f"{path}: a table of {found.device!r}, and this device is {device!r}")
        if _series(found.library) != _series(__version__):
            raise ValueError(
                f"{path}: measured with jaxsparse {found.library}, and this is {__version__}: "
                "measure again with js.tune"
            )
        return found


class _Head(msgspec.Struct):
    """What is read of a file first."""

    format: str = ""
    schema: int = 0


T = TypeVar("T")


def _joined(
    mine: Iterable[T], others: Iterable[T], key: Callable[[T], tuple[Any, ...]]
) -> tuple[T, ...]:
    """Both, the others' in place of those of equal key."""
    return tuple(({key(each): each for each in mine} | {key(e): e for e in others}).values())


def _entry_key(entry: Entry) -> tuple[Any, ...]:
    return entry.op, entry.dtype, tuple(sorted(entry.features.items()))


def _rate_key(rate: Rate) -> tuple[Any, ...]:
    return rate.op, rate.dtype, rate.variant, rate.shape


def _constant_key(constant: Constant) -> tuple[Any, ...]:
    return constant.op, constant.name, constant.shape, constant.dtype


def _series(version: str) -> tuple[str, ...]:
    """Versions with equal kernels: "0.1.3" is of the series 0.1."""
    return tuple(version.split(".")[:2])


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


#: (device kind, table of another device) -> table, for devices that were never measured.
_ESTIMATES: list[Callable[[str, TuningTable], TuningTable]] = []


def estimate_with(make: Callable[[str, TuningTable], TuningTable]) -> None:
    """Let an op put estimates in place of another device's measurements."""
    _ESTIMATES.append(make)


def base_for(device: str, platform: str) -> TuningTable:
    """The shipped table of a device kind of the platform; where it was never measured that of the
    platform's first device, as it is.
    """
    tables = {n: t for n, t in shipped().items() if (n == "cpu") == (platform == "cpu")}
    return tables.get(device) or next(iter(tables.values()))


def table_for(device: str, platform: str) -> TuningTable:
    """The shipped table of a device kind; where it was never measured that of the same platform's
    first device, on a GPU with what the ops estimate for it.
    """
    found = base_for(device, platform)
    if platform == "cpu" or not device or device == found.device:
        return found
    for make in _ESTIMATES:
        found = make(device, found)
    return found


class Measured:
    """Constants of `op`, by name, from the shipped table of this machine's device, else from that
    of the same platform's first device. They are read when they are asked for, since importing a
    module must not start JAX's backends.

    Args:
        op: as the tables name it.
        platform: "cpu" or "cuda".
    """

    def __init__(self, op: str, platform: str):
        self._op, self._platform = op, platform

    def __call__(self, name: str, shape: str = "") -> float:
        """One number; `shape` is the class of problems.

        Raises:
            KeyError: when the table does not hold it.
        """
        return self.several(name, shape)[0]

    def several(self, name: str, shape: str = "") -> tuple[float, ...]:
        """Several numbers that belong together.

        Raises:
            KeyError: when the table does not hold them.
        """
        table = base_for(device_kind(self._platform), self._platform)
        return _value(table, self._op, name, shape)


def _value(table: TuningTable, op: str, name: str, shape: str) -> tuple[float, ...]:
    found = _by_name(Same(table)).get((op, name, shape))
    if found is None:
        raise KeyError(f"the tuning table of {table.device} holds no {name!r} of {op}")
    return found


class Same:
    """A table as a key: that very one, for its hash takes longer than to read it."""

    __slots__ = ("table",)

    def __init__(self, table: TuningTable):
        self.table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.table is other.table

    def __hash__(self) -> int:
        return id(self.table)


@functools.lru_cache(maxsize=16)
def _by_name(same: Same) -> dict[tuple[str, str, str], tuple[float, ...]]:
    return {(c.op, c.name, c.shape): c.value for c in same.table.constants}
