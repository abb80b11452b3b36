"""The module `jaxsparse._cuda` of the stand-in, and calls of its handlers."""

import ctypes
import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MODULE = "jaxsparse._cuda"

#: XLA_FFI_DataType of c_api.h.
CODES = {"bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7}
CODES |= {"uint32": 8, "uint64": 9, "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16}

#: What XLA aligns buffers to on a GPU; no buffer is aligned to more.
ALIGNMENT = 128

#: (shape, dtype).
Array = tuple[tuple[int, ...], Any]


class Call(NamedTuple):
    """A call of a handler. `aliases`: operand -> the result that has its buffer."""

    handler: str
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    attributes: dict[str, Any]
    aliases: dict[int, int]


def _stages(registered: Any) -> tuple[ctypes.c_void_p | None, ctypes.c_void_p]:
    """The functions of a handler: the one before every execution (or None), and the execution."""
    stages = registered if isinstance(registered, dict) else {"execute": registered}
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found = {k: ctypes.c_void_p(pointer(v, b"xla._CUSTOM_CALL_TARGET")) for k, v in stages.items()}
    return found.get("initialize"), found["execute"]


def _array(shape: tuple[int, ...], dtype: Any) -> list[int]:
    kind = np.dtype(dtype)
    bytes_ = kind.itemsize
    for size in shape:
        bytes_ *= size
    return [CODES[kind.name], bytes_, len(shape), *shape]


def _numbers(call: Call) -> list[int]:
    """The call as `driver/call.cc` reads it."""
    found = [len(call.results)]
    for result in call.results:
        found += _array(*result)
    found.append(len(call.operands))
    for i, operand in enumerate(call.operands):
        found += [*_array(*operand), call.aliases.get(i, -1)]
    found.append(len(call.attributes))
    for _, value in sorted(call.attributes.items()):
        raw = np.asarray(value).tobytes().ljust(8, b"\0")
        found += [CODES[np.asarray(value).dtype.name], int.from_bytes(raw, "little", signed=True)]
    return found


def load(library: Path) -> Any:
    """Import the library as the package's own CUDA module; returns its C functions.

    Raises:
        ImportError: if the package is imported already.
    """
    if MODULE in sys.modules or "jaxsparse" in sys.modules:
        raise ImportError("load the stand-in before jaxsparse is imported")
    loader = ExtensionFileLoader(MODULE, str(library))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[MODULE] = module
    return ctypes.CDLL(str(library))


class StandIn:
    """The handlers of a library that `load` gave.

    Attributes:
        devices: the names of its devices; a device is its position.
    """

    def __init__(self, library: Path):
        self._c = load(library)
        for name in ("Call", "Faults", "Kernels", "Devices"):
            getattr(self._c, f"StandIn{name}").restype = ctypes.c_char_p
        self.devices = self._c.StandInDevices().decode().splitlines()
        registered = sys.modules[MODULE].registrations()  # pyright: ignore
        self._stages = {
            name.removeprefix("jaxsparse_"): _stages(stages) for name, stages in registered.items()
        }
        self._encoded: Any = None, None, None  # the call that ran last

    @property
    def handlers(self) -> list[str]:
        """The names of the handlers, without prefix."""
        return sorted(self._stages)

    def run(self, call: Call, device: int) -> tuple[str, list[str]]:
        """The handler's error, or ""; and what the runtime refused."""
        initialize, execute = self._stages[call.handler]
        if self._encoded[0] is not call:
            numbers = np.asarray(_numbers(call), np.int64)
            names = [name.encode() for name in sorted(call.attributes)]
            self._encoded = call, numbers, (ctypes.c_char_p * len(names))(*names)
        _, numbers, names = self._encoded
        error = self._c.StandInCall(
            initialize,
            execute,
            device,
            ctypes.c_int64(ALIGNMENT),
            numbers.ctypes.data_as(ctypes.c_void_p),
            names,
        ).decode()
        return error, self.faults()

    def faults(self) -> list[str]:
        """What the runtime has refused since the last call of this."""
        return self._c.StandInFaults().decode().splitlines()

    def launches(self) -> dict[str, list[int | None]]:
        """Symbol of a kernel -> launches on each device; None where the device has no code."""
        rows = (line.split() for line in self._c.StandInKernels().decode().splitlines())
        return {row[-1]: [None if n == "-" else int(n) for n in row[:-1]] for row in rows}
