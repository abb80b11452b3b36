"""What the benchmarks of frozen weights share: chains of calls, comparisons, their table."""

import contextlib
import ctypes
import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsparse.bench.measure.timing import Samples, interleave
from jaxsparse.bench.report.provenance import provenance

#: mallopt's parameters (malloc.h), and bytes: blocks up to here come from the heap (the most that
#: glibc takes), what is free at its end stays, and it grows by so much.
_KEEP = {-3: 1 << 25, -1: 1 << 30, -2: 1 << 26}
TOLERANCE = 2e-5  # float32: largest error over the largest value


def keep_freed_memory() -> None:
    """Results of some megabytes come from memory that the process has already: without this, it is
    chance which side gets fresh pages from the system, at a microsecond and more a page. For all
    sides alike; nothing where the C library is not glibc.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        for parameter, size in _KEEP.items():
            if not library.mallopt(parameter, size):
                raise OSError(f"mallopt({parameter}, {size}) failed")


_SPIN = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(100000): pass
"""


@contextlib.contextmanager
def awake(wanted: bool = True) -> Iterator[None]:
    """Keeps this process's cores from halting: each has a thread that any other work displaces.

    A virtual core that halts between two calls is scheduled anew by its host, often beside the
    other one on one physical core; then two workers are hardly faster than one, for sides whose
    workers sleep between calls (XLA's pool does) and not for those whose workers spin.
    """
    cores = sorted(os.sched_getaffinity(0)) if wanted else []
    spins = [
        subprocess.Popen([sys.executable, "-c", _SPIN, str(core), str(os.getpid())])
        for core in cores
    ]
    try:
        yield
    finally:
        for spin in spins:
            spin.kill()
            spin.wait()


class Chain:
    """One way of computing `function(*inputs)`: ten calls and more one after the other, on distinct
    inputs in turn, each waited for; `jit` False calls it as it is. A function of several results
    has a sequence of arrays for each set in `wants`.
    """

    calls = 10

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Sequence[tuple[Any, ...]],
        wants: Sequence[np.ndarray | Sequence[np.ndarray]],
        *,
        jit: bool = True,
        calls: int = 10,
    ):
        self.name, self.sets, self.calls = name, len(inputs), calls
        self._function = jax.jit(function) if jit else function
        self._inputs, self._wants = inputs, wants
        self._out: dict[int, Any] = {}

    def enqueue(self, which: int) -> None:
        """The chain; its last call is on set `which`."""
        for left in range(self.calls - 1, -1, -1):
            at = (which - left) % self.sets
            self._out[at] = jax.block_until_ready(self._function(*self._inputs[at]))

    def wait(self) -> None:
        """Nothing: every call was waited for."""

    def error(self, which: int) -> float:
        """Largest error of the last call on set `which` over the largest value, of each of its
        results; inf for NaN.
        """
        got, want = jax.tree.leaves(self._out[which]), jax.tree.leaves(self._wants[which])
        return max(_error(np.asarray(g, np.float64), w) for g, w in zip(got, want, strict=True))


def _error(got: np.ndarray, want: np.ndarray) -> float:
    error = np.abs(got - want).max(initial=0.0) / max(1.0, np.abs(want).max(initial=0.0))
    return float(error) if np.isfinite(error) else float("inf")


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: the sides' samples by name, and the side that the others are measured
    against.
    """

    case: str
    against: str
    samples: dict[str, Samples]

    def cells(self, side: str) -> list[str]:
        """Median in ms with its quartiles, and the speed-up."""
        s, base = self.samples[side], self.samples[self.against].wall_median
        if s.failure or s.error > TOLERANCE:
            return [self.case, side, s.failure or f"WRONG (error {s.error:.1e})", ""]
        low, high = (1e3 * q for q in s.wall_quartiles)
        time = f"{1e3 * s.wall_median:.3f} ({low:.3f}-{high:.3f})"
        return [self.case, side, time, f"{base / s.wall_median:.2f}x"]


def compare(
    case: str, sides: Sequence[Any], samples: int, pause: float = 0.0, lasts: float = 0.0
) -> Row:
    """Time the sides interleaved; the first is what the others are measured against.

    Args:
        case: its name in the table.
        sides: what is compared.
        samples: turns of each side.
        pause: seconds between turns, in which the threads of the last side stop waiting for more
            work (they spin for some milliseconds, and would take a core from the next side).
        lasts: seconds that a chain of the first side should last at least: all chains become
            longer, up to ten times, so that waking up after the pause is not part of the figure.
    """
    if lasts > 0:
        sides[0].enqueue(0)
        start = time.perf_counter()
        sides[0].enqueue(0)
        more = lasts / (time.perf_counter() - start)
        for side in sides:
            side.calls = math.ceil(side.calls * min(max(more, 1.0), 10.0))
    took = interleave(sides, samples=samples, on_step=lambda name: time.sleep(pause))
    return Row(case, sides[0].name, took)


def report(
    title: str, rows: Sequence[Row], command: str, out: Path | None, notes: Sequence[str] = ()
) -> int:
    """Print the table and the notes, write them to `out`; 1 when an output was wrong."""
    lines = [f"# {title}", "", *provenance(command).lines(), ""]
    lines += ["| case | side | ms (quartiles) | speed-up |", "|---|---|---|---|"]
    cells = [row.cells(side) for row in rows for side in row.samples]
    lines += [f"| {' | '.join(c)} |" for c in cells] + ["", *(f"- {note}" for note in notes)]
    print("\n".join(lines))
    if out is not None:
        out.write_text("\n".join(lines) + "\n")
    return int(any(not c[3] for c in cells))
