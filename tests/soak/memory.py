"""What a process holds: memory, Python's objects, compiled programs, arrays, generated code."""

import contextlib
import ctypes
import dataclasses
import gc
import os
from pathlib import Path
from types import FunctionType
from typing import Any

import jax

from jaxsparse.ffi.register import module

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Held:
    """What a process holds, or the difference of two.

    Attributes:
        bytes: resident memory.
        objects: that Python's garbage collector tracks.
        own: of those, instances of this package's classes, and functions that it defines.
        programs: executables that JAX's client keeps.
        arrays: JAX arrays that are not deleted.
        modules: generated GPU code in the process's table; 0 without a GPU.
    """

    bytes: int = 0
    objects: int = 0
    own: int = 0
    programs: int = 0
    arrays: int = 0
    modules: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(*(a + b for a, b in zip(self.each, other.each, strict=True)))

    def __sub__(self, other: "Held") -> "Held":
        return Held(*(a - b for a, b in zip(self.each, other.each, strict=True)))

    @property
    def each(self) -> tuple[int, ...]:
        """The numbers, in order."""
        return dataclasses.astuple(self)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def modules() -> int:
    """How many generated products the CUDA module keeps."""
    native, _ = module("cuda")
    return 0 if native is None else native.pruned_code_count()


def held(settle: bool = True) -> Held:
    """What the process holds.

    Args:
        settle: first clear JAX's caches, collect what nothing refers to, and have the C library
            return free pages, so that only what is still referenced is left.
    """
    if settle:
        jax.clear_caches()
        for _ in range(2):  # finalizers of the first may drop the last reference to others
            gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
    objects = gc.get_objects()
    own = sum(map(_is_own, objects))
    programs = len(jax.devices()[0].client.live_executables())
    arrays = len(jax.live_arrays())
    return Held(resident(), len(objects), own, programs, arrays, modules())


def _is_own(value: Any) -> bool:
    of = value if isinstance(value, FunctionType) else type(value)
    home = of.__module__
    return isinstance(home, str) and home.startswith("jaxsparse")
