"""The rates that `jaxsparse calibrate` measured on this machine, in the user's cache."""

import functools
import re
import secrets
import warnings
from pathlib import Path

import msgspec

from jaxsparse.select.roofline.machine import Machine
from jaxsparse.version import __version__

FORMAT, SCHEMA = "jaxsparse calibration", 1


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    machine: Machine
    format: str = FORMAT
    schema: int = SCHEMA
    library: str = __version__


def folder() -> Path:
    """The folder of calibrations, in the user's cache."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("jaxsparse"), "calibration")


def file_of(device: str, inside: Path | None = None) -> Path:
    """The file of a device kind and this version of the library."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", device)
    return (inside or folder()) / f"{name}-{__version__}.json"


def keep(machine: Machine, inside: Path | None = None) -> Path:
    """Write a calibration in place of an older one, whole or not at all, and return its path."""
    path = file_of(machine.device, inside)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file of its own for each writer: of two at once the last one stays, without a lock.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(Kept(machine)), indent=1))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    calibrated.cache_clear()
    return path


def read(device: str, inside: Path | None = None) -> Machine:
    """The calibration of a device kind.

    Raises:
        OSError: when the file cannot be read.
        ValueError: for a file that is not a calibration, or is of another device or version.
    """
    path = file_of(device, inside)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a calibration: {error}") from error
    asked = (FORMAT, SCHEMA, __version__, device)
    told = (found.format, found.schema, found.library, found.machine.device)
    for name, want, got in zip(("format", "schema", "library", "device"), asked, told, strict=True):
        if want != got:
            raise ValueError(f"{path}: {name}={got!r}; it takes {want!r}: run jaxsparse calibrate")
    rates = (getattr(found.machine, n) for n in ("processors", "copy", "l2", "half", "tf32"))
    if not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"{path}: a rate that is not positive: run jaxsparse calibrate")
    return found.machine


@functools.cache
def calibrated(device: str) -> Machine | None:
    """The calibration of this device kind, if there is one; read once.

    Warns:
        RuntimeWarning: for a file that is refused, with the reason.
    """
    if not file_of(device).is_file():
        return None
    try:
        return read(device)
    except (OSError, ValueError) as error:
        warnings.warn(f"calibration not used: {error}", RuntimeWarning, stacklevel=2)
        return None
