"""Timing several ways of doing one thing, interleaved in one run: median, spread, and the error of
every timed call.

Two figures. *Wall* is what a user sees: the time of one chain of calls, waited for, over its calls.
*Device* is the time between two calls of work that is queued up: all sets at once less one set,
over the calls in between. What is paid once per chain (the dispatch, the wait) falls out, so on a
GPU it is the time of the kernels and of the gaps between them.
"""

import contextlib
import contextvars
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from jaxsparse.bench.measure.turns import from_environment

#: Gives what is entered while sides are timed, where processes share a device.
ALONE: contextvars.ContextVar[Callable[[], contextlib.AbstractContextManager[None]] | None]
ALONE = contextvars.ContextVar("alone", default=None)


class Side(Protocol):
    """One way: it owns `sets` sets of distinct inputs, and runs a chain of `calls` calls on one of
    them.
    """

    name: str
    calls: int
    sets: int

    def enqueue(self, which: int) -> None:
        """Start the chain on set `which`."""
        ...

    def wait(self) -> None:
        """Wait for everything that was started."""
        ...

    def error(self, which: int) -> float:
        """The worst error of the last chain on set `which`, over the largest value; inf for NaN.
        Spoils its outputs.
        """
        ...


@dataclasses.dataclass
class Samples:
    """What one side took, in seconds per call."""

    wall: list[float] = dataclasses.field(default_factory=list)
    device: list[float] = dataclasses.field(default_factory=list)
    error: float = 0.0
    failure: str = ""

    @property
    def wall_median(self) -> float:
        """Median wall time of a call, in seconds."""
        return float(np.median(self.wall)) if self.wall else float("nan")

    @property
    def device_median(self) -> float:
        """Median device time of a call, in seconds; NaN where it was not measured."""
        return float(np.median(self.device)) if self.device else float("nan")

    @property
    def wall_quartiles(self) -> tuple[float, float]:
        """The quartiles of the wall time."""
        if not self.wall:
            return float("nan"), float("nan")
        low, high = np.percentile(self.wall, [25, 75])
        return float(low), float(high)


def columns(took: Samples, base: Samples, tolerance: float) -> dict[str, Any]:
    """What the rows of all tables say of a side: times in microseconds, how often as fast as `base`
    it is, and its error. None: not known.
    """
    low, high = took.wall_quartiles
    return {
        "wall_us": _known(1e6 * took.wall_median),
        "wall_low_us": _known(1e6 * low),
        "wall_high_us": _known(1e6 * high),
        "device_us": _known(1e6 * took.device_median),
        "speedup": _known(base.wall_median / took.wall_median),
        "device_speedup": _known(base.device_median / took.device_median),
        "error": None if took.failure else _known(took.error),
        "tolerance": tolerance,
        "correct": not took.failure and took.error <= tolerance,
        "note": took.failure,
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def interleave(
    sides: Sequence[Side],
    *,
    samples: int,
    device: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    on_step: Callable[[str], None] = lambda name: None,
) -> dict[str, Samples]:
    """Time every side `samples` times, taking turns in an order that changes from round to round.

    Args:
        sides: with distinct names. A side that raises is reported as failed and leaves the run; the
            others go on.
        samples: rounds; one more, untimed, comes first (compilation, and a check of every set).
        device: measure device times too, where a side has two sets or more.
        clock: seconds.
        on_step: called with a side's name after each of its turns.

    Returns:
        Name -> Samples. The outputs of every timed call were checked; `error` is the worst of them.

    Raises:
        ValueError: for two sides of one name.
    """
    results = {side.name: Samples() for side in sides}
    if len(results) != len(sides):
        raise ValueError(f"sides need distinct names: {[side.name for side in sides]}")
    shuffle = np.random.default_rng(0)

    def round_of(turn: int) -> None:
        for place in shuffle.permutation(len(sides)):
            side = sides[place]
            result = results[side.name]
            if result.failure:
                continue
            try:
                if turn == 0:
                    _warm_up(side, result)
                else:
                    _sample(side, result, turn, device and side.sets > 1, clock)
            except Exception as error:  # any failure of one side is a result of this run
                result.failure = f"{type(error).__name__}: {error}"
            on_step(side.name)

    round_of(0)
    with (ALONE.get() or from_environment())():
        for turn in range(1, samples + 1):
            round_of(turn)
    return results


def _warm_up(side: Side, result: Samples) -> None:
    for which in range(side.sets):
        side.enqueue(which)
    side.wait()
    _check(side, result, range(side.sets))


def _sample(
    side: Side, result: Samples, turn: int, device: bool, clock: Callable[[], float]
) -> None:
    which = turn % side.sets
    start = clock()
    side.enqueue(which)
    side.wait()
    one = clock() - start
    _check(side, result, [which])
    result.wall.append(one / side.calls)
    if not device:
        return
    start = clock()
    for each in range(side.sets):
        side.enqueue(each)
    side.wait()
    every = clock() - start
    _check(side, result, range(side.sets))
    result.device.append((every - one) / ((side.sets - 1) * side.calls))


def _check(side: Side, result: Samples, sets: Sequence[int] | range) -> None:
    result.error = max([result.error, *(side.error(which) for which in sets)])
