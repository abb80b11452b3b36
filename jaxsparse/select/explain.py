"""`js.explain`: what each call inside a function ran, on how many tiles, and why."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsparse.select.config import override, settings
from jaxsparse.select.select import Choice


@dataclasses.dataclass
class Call:
    """One call of an op: what was chosen when it was traced, and what its index held each time it
    ran.
    """

    op: str
    shapes: str
    implementation: str
    choice: Choice | None
    against: dict[str, str]
    n_tiles: int
    counts: list[int] = dataclasses.field(default_factory=list)
    overflows: int = 0

    def variant(self, count: int) -> str:
        """The variant that ran on an index with `count` tiles."""
        if self.choice is None:
            return self.implementation
        density = count / self.n_tiles if self.n_tiles else 0.0
        fits = (r.variant for r in self.choice.rungs if density <= r.up_to)
        return next(fits, self.choice.rungs[-1].variant)

    def __str__(self) -> str:
        why = self.choice.why if self.choice else "no variants"
        lines = [f"{self.op} {self.shapes}: implementation {self.implementation} ({why})"]
        for count in self.counts:
            share = 100 * count / self.n_tiles if self.n_tiles else 0.0
            skipped = max(self.n_tiles - count, 0)
            tiles = f"{count} of {self.n_tiles} tiles ({share:.1f} %)"
            lines.append(f"  ran {self.variant(count)}: {tiles}, skipped {skipped}")
        if self.overflows:
            lines.append(
                f"  overflow in {self.overflows} of {len(self.counts)} runs: raise capacity"
            )
        lines += [f"  not {name}: {reason}" for name, reason in self.against.items()]
        return "\n".join(lines)


@dataclasses.dataclass
class Explanation:
    """The calls of one run, in the order in which they were traced, and the function's result."""

    calls: list[Call]
    result: Any

    def __str__(self) -> str:
        return "\n".join(map(str, self.calls)) or "no call of a jaxsparse op"


_tokens = itertools.count()
_open: dict[int, list[Call]] = {}


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Run `fn(*args, **kwargs)` under jit and report each call of an op in it.

    Args:
        fn: a function that may be jitted.
        *args, **kwargs: its arguments, arrays or pytrees of arrays.

    Returns:
        An Explanation; print it. Each Call says which implementation and variant ran, how many
        tiles were active and skipped, and why the other implementations and variants did not run.
        Gradients are not listed.
    """
    token = next(_tokens)
    _open[token] = []
    try:
        with override(explain=token):
            result = jax.block_until_ready(jax.jit(fn)(*args, **kwargs))
            jax.effects_barrier()
        return Explanation(_open[token], result)
    finally:
        del _open[token]


def record(
    op: str,
    shapes: str,
    implementations: Mapping[str, str],
    choose: Callable[[str], tuple[Choice | None, dict[str, str]]],
    index: Any,
) -> None:
    """Note a call, when `explain` is watching this trace.

    `implementations` is platform -> implementation; `choose(implementation)` gives its choice and
    what speaks against others.
    """
    token = settings().explain
    if token is None or token not in _open:
        return
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    name = implementations.get(platform, implementations.get("other", "reference"))
    choice, against = choose(name)
    call = Call(op, shapes, name, choice, against, index.n_tiles)
    _open[token].append(call)

    def ran(count: np.ndarray, overflow: np.ndarray) -> None:
        call.counts.append(int(count))
        call.overflows += int(overflow)

    jax.debug.callback(ran, index.count, index.overflow)


def check_overflow(op: str, index: Any) -> None:
    """Under `js.checked()`: raise when the index holds more tiles than its capacity."""
    if not settings().checked or not index.may_overflow:
        return

    def raise_if(count: np.ndarray, overflow: np.ndarray) -> None:
        if overflow:
            raise ValueError(
                f"{op}: the index has {int(count)} active tiles and a capacity of "
                f"{index.capacity}; what is past the capacity was not computed"
            )

    jax.debug.callback(raise_if, index.count, index.overflow)
