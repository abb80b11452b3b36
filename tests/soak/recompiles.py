"""Compiles and drops new functions, and measures what stays in memory.

JAX keeps an entry for each new shape that a jitted function of its own (`jnp.where`, `jnp.cumsum`)
is traced with, and `jax.clear_caches()` does not drop it. So there are two parts: programs of new
shapes, compared with programs of plain JAX; and programs of the same shapes, with new functions,
masks, weights and plans, where memory must not grow.
"""

import dataclasses
import weakref
from typing import Any

import jax

from soak.families import FAMILIES, PLAIN, Program, Sizes
from soak.memory import Held, held
from soak.report import Finding, Step, progress

#: Recompiles between two measurements of memory; programs of plain JAX, as a share of them.
EVERY, PLAIN_SHARE = 400, 0.2
#: Bytes that a recompile of a known shape may leave, at most.
MOST_BYTES = 1024.0
#: Objects that the bounded caches may gain: choices by pattern, and what these refer to.
BOUNDED = 8192
#: Bytes that fragmentation may cost, which a short run measures as growth.
PIECES = 24e6
#: Every so many programs of a family are compiled with a gradient.
GRADIENT = 3


@dataclasses.dataclass
class Watched:
    """Weak references to what must be freed."""

    refs: list[weakref.ref[Any]] = dataclasses.field(default_factory=list)
    total: int = 0

    def add(self, *refs: weakref.ref[Any]) -> None:
        """Add references."""
        self.refs += refs
        self.total += len(refs)

    def alive(self) -> int:
        """How many of the objects are still alive."""
        self.refs = [ref for ref in self.refs if ref() is not None]
        return len(self.refs)


def compiled(program: Program, gradient: bool) -> weakref.ref[Any]:
    """Compile, run and drop a program; a reference to its jitted function."""
    run = jax.jit(program.gradient() if gradient and program.moving else program.run)
    jax.block_until_ready(run(*program.operands))
    return weakref.ref(run)


def some(table: Any, count: int, number: int, distinct: int, watched: Watched, step: Step) -> int:
    """Run `count` programs from this number on, of `distinct` different shapes; the next number."""
    names = list(table)
    for i in range(number, number + count):
        shape = i % distinct
        program = table[names[shape % len(names)]](Sizes((1, shape), (2, i)))
        gradient = shape // len(names) % GRADIENT == 0
        watched.add(compiled(program, gradient), *program.frozen)
        step(1)
    return number + count


def megabytes(held: Held) -> str:
    """What a process holds, in words."""
    return f"{held.bytes / 1e6:.0f} MB, {held.objects} objects, {held.own} of jaxsparse"


def recompiles(count: int, every: int = EVERY, bounded: int = BOUNDED) -> list[Finding]:
    """Run both parts, `count` programs in all: a quarter of them with new shapes. `bounded`: the
    objects by which this package's may grow in the second part.
    """
    every = max(min(every, count // 8), 1)
    new = max(count // 4, 1)
    watched = Watched()
    with progress("recompiles", count) as step:
        findings = with_new_shapes(new, every, watched, step)
        findings += with_the_same(count - new, new, every, bounded, watched, step)
    return findings


def with_new_shapes(count: int, every: int, watched: Watched, step: Step) -> list[Finding]:
    """Blocks of this package's programs and of plain ones in turn; `step` counts the former."""
    ours = plain = Held()
    done = beside = 0
    first = held()
    while done < count:
        block = min(every, count - done)
        before = held()
        some(FAMILIES, block, done, count, watched, step)
        between = held()
        number = max(int(block * PLAIN_SHARE), len(PLAIN))
        some(PLAIN, number, beside, count, watched, lambda done, seen="": None)
        after = held()
        if done:  # the first block also loads and makes what exists once
            ours, plain = ours + (between - before), plain + (after - between)
        done, beside = done + block, beside + number
        step(0, megabytes(after))
    counted = max(done - every, 1), max(beside - max(int(every * PLAIN_SHARE), len(PLAIN)), 1)
    each = [h.bytes / n for h, n in zip((ours, plain), counted, strict=True)]
    objects = [h.objects / n for h, n in zip((ours, plain), counted, strict=True)]
    return [
        Finding("recompiles with new shapes", f"{done}, {megabytes(held())}"),
        Finding("at first", megabytes(first)),
        Finding("left behind by one", f"{each[0] / 1e3:.1f} KB, {objects[0]:.0f} objects"),
        Finding("by one of plain JAX", f"{each[1] / 1e3:.1f} KB, {objects[1]:.0f} objects"),
    ]


def with_the_same(
    count: int, distinct: int, every: int, bounded: int, watched: Watched, step: Step
) -> list[Finding]:
    """Programs of known shapes; all else about them is new."""
    first = held()
    done, last, highest = 0, first, first.bytes
    while done < count:
        block = min(every, count - done)
        some(FAMILIES, block, distinct + done, distinct, watched, step)
        last, done = held(), done + block
        highest = max(highest, last.bytes)
        step(0, megabytes(last))
    alive, grown = watched.alive(), last - first
    most = PIECES + MOST_BYTES * count
    return [
        Finding("recompiles with new functions, masks, weights", f"{count}, {megabytes(last)}"),
        Finding(
            "memory grew by",
            f"{grown.bytes / 1e6:.1f} MB, {grown.bytes / max(count, 1):.0f} bytes each",
            f"{most / 1e6:.0f} MB",
            grown.bytes <= most,
        ),
        Finding("its largest growth", f"{(highest - first.bytes) / 1e6:.1f} MB"),
        Finding("objects of jaxsparse grew by", f"{grown.own}", f"{bounded}", grown.own <= bounded),
        Finding("functions, patterns, plans alive", f"{alive} of {watched.total}", "0", not alive),
        Finding("executables alive", f"{last.programs}", "0", not last.programs),
        Finding("arrays alive", f"{grown.arrays} more", "0", grown.arrays <= 0),
        Finding("generated modules", f"{last.modules}", "0", not last.modules),
    ]
