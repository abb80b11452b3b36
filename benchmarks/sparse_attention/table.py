"""Block-sparse attention against torch's FlexAttention and cuDNN's attention, called from torch and
from JAX, in one run on a GPU with torch installed.

    python benchmarks/sparse_attention/table.py [--only forward,backward,lists,decode]
        [--seconds 150] [--no-flex] [--deterministic] [--out FILE.md]

All in bfloat16. Times are microseconds of GPU time per call: medians of rounds in which all sides
take turns. A side is a chain of calls on distinct inputs between two CUDA events, enqueued while
the stream is held, so that the host does not count. Masks are built beforehand, except in "lists",
which measures building them. TFLOP/s count the pairs of a query and a key that the mask keeps: 4
operations for each pair and element of depth forward, 10 backward (without the forward call).

Every result is checked against the definition in float32, at 48 queries and 48 keys of every head.
Where torch cannot compile a case, or does not finish within `--seconds`, its column says so. The
exit status is 1 when a result was wrong.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch_sides as rivals
from decode import decode_lines
from jax_sides import Chains
from lists import list_lines
from problem import Problem, error, wanted

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance

ROUNDS, HOLD_US = 5, 2500
BOUND = {"forward": 2e-2, "backward": 3e-2}
OURS, FLEX, CUDNN, MASKED, JAX = "jaxsparse", "Flex", "cuDNN", "cuDNN, mask", "jax cuDNN"
SIDES = (OURS, FLEX, CUDNN, MASKED, JAX)
DENSE_TOKENS = 8192  # up to here a dense mask is measured, too
SECTIONS = ("forward", "backward", "lists", "decode")


def _sizes(tokens: int, depth: int, block: int, *goals: float) -> list[Problem]:
    shares = (0.1, 0.25, 0.5)
    wanted = goals or (0.0,) * 3
    return [
        Problem(tokens, 16, depth, block, share, goal=goal)
        for share, goal in zip(shares, wanted, strict=True)
    ]


def _dense(tokens: int, depth: int) -> list[Problem]:
    return [Problem(tokens, 16, depth, 128), Problem(tokens, 16, depth, 128, causal=True)]


FORWARD = [
    *_sizes(8192, 128, 128, 100, 250, 500),
    *_dense(8192, 128),
    *_sizes(8192, 128, 64),
    *_sizes(8192, 64, 128),
    *_dense(8192, 64),
    *_sizes(32768, 128, 128, 1360, 3390, 6770),
    *_dense(32768, 128),
    *_sizes(32768, 128, 64),
    *_sizes(32768, 64, 128),
    Problem(109632, 7, 128, 64, row_blocks=64, goal=2900),
]
BACKWARD = [
    *_sizes(8192, 128, 128),
    *_dense(8192, 128),
    *_sizes(8192, 128, 64),
    *_sizes(8192, 64, 128),
    *_sizes(32768, 128, 128),
    *_dense(32768, 128),
]


@dataclasses.dataclass
class Side:
    """One alternative. `run` does a round of `calls` calls and returns the first result; `took`
    holds microseconds per call, `worst` the error of the first result.
    """

    run: Callable[[], Any]
    calls: int
    took: list[float] = dataclasses.field(default_factory=list)
    worst: float = 0.0


class Bench:
    """What the sections share: the clock, the time limit, and whether a result was wrong."""

    def __init__(self, seconds: float, flex: bool):
        self.clock = GpuClock(HOLD_US)
        self.chains = Chains(self.clock)
        self.until = time.monotonic() + seconds
        self.with_flex, self.wrong = flex, False

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self.until - time.monotonic()

    def jax_side(self, run: Callable[[], Any], calls: int) -> Side:
        """A jitted chain that contains the clock's two events."""
        return Side(lambda: jax.block_until_ready(run())[0], calls)

    def torch_side(self, way: rivals.Way) -> Side:
        """Calls that torch enqueues while its stream is held."""

        def run() -> Any:
            rivals.wait()
            self.clock.begin(rivals.stream())
            found = [way.enqueue(i) for i in range(way.calls)]
            self.clock.end(rivals.stream())
            return way.result(found[0])

        return Side(run, way.calls)

    def measure(
        self, makers: dict[str, Callable[[], Side]], check: Callable[[Any], float], bound: float
    ) -> dict[str, str | float]:
        """Name -> microseconds per call, or the reason that there are none. `check` returns the
        error of a result; an error above `bound` is wrong.
        """
        found: dict[str, str | float] = {}
        sides: dict[str, Side] = {}
        for name, make in makers.items():
            try:
                with rivals.limit(self.left if name == FLEX else 60):
                    side = make()
                    first = side.run()
                    side.worst = check(first if isinstance(first, tuple) else (first,))
                sides[name] = side
            except Exception as problem:  # a side that cannot run is a result; the others go on
                self.wrong |= name == OURS
                text = " ".join(str(problem).split())[:80].replace("|", "/")
                found[name] = f"{type(problem).__name__}: {text}"
        for _ in range(ROUNDS):
            for side in sides.values():
                side.run()
                side.took.append(self.clock.microseconds() / side.calls)
        for name, side in sides.items():
            ok = side.worst <= bound
            self.wrong |= not ok
            found[name] = float(np.median(side.took)) if ok else f"WRONG by {side.worst:.1e}"
        return found

    def attention(self, problem: Problem, backward: bool) -> list[str]:
        """The cells of one row."""
        many = 4 if problem.tokens <= DENSE_TOKENS else 2
        k, v = problem.normal(1), problem.normal(2)
        qs = [problem.normal(10 + i) for i in range(1 if backward else many)]
        gs = [problem.normal(20 + i) for i in range(many)]
        mask = problem.mask()
        out, lse = _forward(qs[0], k, v, mask)
        want = wanted(problem, qs[0], k, v, gs[0], out, lse)
        wants = want[1:] if backward else want[:1]

        def check(got: Sequence[Any]) -> float:
            pairs = zip(got, wants, strict=True)
            return max(error(one, exact, problem.sample) for one, exact in pairs)

        def chain(how: str, given: Any) -> Callable[[], Side]:
            if backward:
                way = self.chains.backward
                return lambda: self.jax_side(way(how, qs[0], k, v, given, gs), many)
            return lambda: self.jax_side(lambda: self.chains.forward(how, qs, k, v, given), many)

        def torch(attend: Callable[[], rivals.Attend]) -> Callable[[], Side]:
            g = gs if backward else ()
            return lambda: self.torch_side(rivals.Torch(attend(), qs, k, v, g))

        makers: dict[str, Callable[[], Side]] = {OURS: chain("ours", mask)}
        if problem.form in ("full", "causal"):
            makers[CUDNN] = torch(lambda: rivals.cudnn(problem.causal))
            makers[JAX] = chain(problem.form, None)
        elif not backward and problem.tokens <= DENSE_TOKENS:
            makers[MASKED] = torch(lambda: rivals.cudnn(mask=rivals.dense(problem)))
        if self.with_flex and problem.form != "full":
            makers[FLEX] = torch(lambda: rivals.flex(problem))
        kind = "backward" if backward else "forward"
        found = self.measure(makers, check, BOUND[kind])
        return _cells(problem, found, 10 if backward else 4)


_forward = jax.jit(
    lambda q, k, v, mask: js.sparse_attention(q, k, v, mask, return_lse=True, implementation="cuda")
)


def _cells(problem: Problem, found: dict[str, str | float], operations: int) -> list[str]:
    ours = found[OURS]
    cells = [problem.name, problem.form]
    if isinstance(ours, str):
        cells += [ours, ""]
    else:
        rate = operations * problem.depth * problem.pairs / ours / 1e6
        cells += [f"{ours:.0f}", f"{rate:.0f}"]
    cells.append(f"{problem.goal:.0f}" if problem.goal and operations == 4 else "")
    for name in SIDES[1:]:
        cells.append(versus(found.get(name, ""), ours))
    return cells


def versus(theirs: str | float, ours: str | float) -> str:
    """Their microseconds, and in brackets how many times ours that is."""
    if isinstance(theirs, str):
        return theirs
    return f"{theirs:.0f}" if isinstance(ours, str) else f"{theirs:.0f} ({theirs / ours:.2f}x)"


def attention_lines(bench: Bench, problems: Sequence[Problem], backward: bool) -> list[str]:
    """A section's table."""
    head = ["tokens x heads", "left out", f"{OURS}, us", "TFLOP/s", "goal, us", *SIDES[1:]]
    lines = [_row(head), "|---" * len(head) + "|"]
    for problem in problems:
        if bench.left < 0:
            lines.append(_row([problem.name, problem.form, "no time left", *[""] * 6]))
            continue
        lines.append(_row(bench.attention(problem, backward)))
        print(lines[-1], flush=True)
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--flex", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--deterministic", action="store_true", help="ours with a fixed order")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; not {', '.join(sorted(unknown))}")
    rivals.prepare()
    bench = Bench(given.seconds, given.flex)
    lines = ["# sparse_attention, bfloat16, us of GPU time per call", ""]
    lines += [*(f"- {fact}" for fact in provenance(" ".join(["python", *sys.argv])).lines()), ""]
    lines += ["In brackets: how many times ours. Each side was checked in the same run.", ""]
    print("\n".join(lines), flush=True)
    sections: dict[str, Callable[[], list[str]]] = {
        "forward": lambda: attention_lines(bench, FORWARD, False),
        "backward": lambda: attention_lines(bench, BACKWARD, True),
        "lists": lambda: list_lines(bench),
        "decode": lambda: decode_lines(bench),
    }
    for name in only:
        with js.config(deterministic=given.deterministic):
            lines += [f"## {name.capitalize()}", "", *sections[name](), ""]
        if given.out is not None:  # what there is, should the run be cut off
            given.out.write_text("\n".join(lines))
    return int(bench.wrong)


if __name__ == "__main__":
    sys.exit(main())
