"""What the benchmarks of frozen weights share: chains of calls, comparisons, their table."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsparse.bench.provenance import provenance
from jaxsparse.bench.timing import Samples, interleave

TOLERANCE = 2e-5  # float32: largest error over the largest value


class Chain:
    """One way of computing `function(*inputs)`: ten calls one after the other, on distinct inputs
    in turn, each waited for; `jit` False calls it as it is.
    """

    calls = 10

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Sequence[tuple[Any, ...]],
        wants: Sequence[np.ndarray],
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
        """Largest error of the last call on set `which` over the largest value; inf for NaN."""
        got, want = np.asarray(self._out[which], np.float64), self._wants[which]
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


def compare(case: str, sides: Sequence[Any], samples: int) -> Row:
    """Time the sides interleaved; the first is what the others are measured against."""
    return Row(case, sides[0].name, interleave(sides, samples=samples))


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
