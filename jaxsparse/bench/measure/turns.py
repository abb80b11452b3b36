"""Processes that share a device: many prepare at once, then one measures, while the others run
nothing there.
"""

import contextlib
import fcntl
import functools
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp

#: Names the folder of the locks, for benchmarks that are started at once on one device.
VARIABLE = "JAXSPARSE_BENCH_TURNS"


class Turns:
    """A lock between processes, in files of `folder`. Each process makes its own `Turns`.

    Who waits comes before who asks later, so that neither kind waits for ever.
    """

    def __init__(self, folder: Path):
        self._next, self._device = (
            os.open(folder / name, os.O_WRONLY | os.O_CREAT) for name in ("next", "device")
        )
        for file in self._next, self._device:
            weakref.finalize(self, os.close, file)

    @contextlib.contextmanager
    def prepare(self) -> Iterator[None]:
        """Compile, draw and whatever else several may do at once."""
        self._take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Inside of `prepare`: have the device for this process alone."""
        jax.block_until_ready(jnp.zeros(()) + 1)  # what was queued before has run
        self._leave()
        self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._leave()
            self._take(fcntl.LOCK_SH)

    def _take(self, kind: int) -> None:
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._device, kind)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _leave(self) -> None:
        fcntl.flock(self._device, fcntl.LOCK_UN)


def from_environment() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What to enter while measuring: `Turns.measure` where the environment names a folder. From
    the first call on, the process counts as preparing until it ends.
    """
    folder = os.environ.get(VARIABLE)
    return _preparing(Path(folder)).measure if folder else contextlib.nullcontext


@functools.lru_cache(8)
def _preparing(folder: Path) -> Turns:
    folder.mkdir(parents=True, exist_ok=True)
    turns = Turns(folder)
    turns.prepare().__enter__()
    return turns
