"""`js.explain`: what each call inside a function ran, on how many tiles, and why."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import jax
import numpy as np
from jax.core import Tracer

from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.ffi.partition import listen
from jaxsparse.ffi.platform import NAMES, offered_by, reason_against
from jaxsparse.select.choice import Choice
from jaxsparse.select.config import override, settings
from jaxsparse.select.table import DENSE
from jaxsparse.select.work import Work

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Parts:
    """Of a call that computes a part of its channels: counts int32[] on the device; what they say
    of a run by an implementation, its own choice and a sentence; and what the parts may be.
    """

    counts: tuple[jax.Array, ...]
    ran: Callable[[str, Sequence[int]], tuple[Choice | None, str]]
    offered: str


@dataclasses.dataclass
class Call:
    """One call of an op: what was chosen when it was traced, and what its index held each time it
    ran.

    `n_tiles`, `counts` and `lists` count in `unit`s; `against` says why other variants and
    implementations could not run, `passed_over` why those that could did not; `fault` says what an
    overflow means where it is not an index's. `work` is the most that the call multiplies and
    moves, from its shapes (None: an op without products). `parts` and `active` are what a call with
    masks of channels offers, and the numbers of active channels of each run; `choice` is that of
    all channels.
    """

    op: str
    shapes: str
    implementation: str
    choice: Choice | None
    against: dict[str, str]
    n_tiles: int
    counts: list[int] = dataclasses.field(default_factory=list)
    overflows: int = 0
    lists: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    unit: str = "tiles"
    fault: str = ""
    work: Work | None = None
    parts: Parts | None = None
    active: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    passed_over: dict[str, str] = dataclasses.field(default_factory=dict)

    def variant(self, count: int) -> str:
        """The variant that ran on an index with `count` units."""
        return self._variant(self.choice, count)

    def _variant(self, choice: Choice | None, count: int) -> str:
        if choice is None:
            return self.implementation
        others = next((rest for first, *rest in self.lists if first == count), ())
        return choice.variant((count, *others), self.n_tiles)

    def __str__(self) -> str:
        why = self.choice.why if self.choice else "no variants"
        lines = [f"{self.op} {self.shapes}: implementation {self.implementation} ({why})"]
        if self.work is not None:
            most = f"{self.work.flops / 1e9:.4g} GFLOP, {self.work.bytes / 1e6:.4g} MB"
            lines.append(f"  at most {most}")
        if self.parts is not None:
            lines.append(f"  runs {self.parts.offered}")
        for run, count in enumerate(self.counts):
            choice, part = self.choice, ""
            if self.parts is not None:
                choice, part = self.parts.ran(self.implementation, self.active[run])
                part = f"; {part}"
            ran = self._variant(choice, count)
            lines.append(f"  ran {ran}: {self._counted(count, dense=ran == DENSE)}{part}")
        if self.overflows:
            runs = f"{self.overflows} of {len(self.counts)} runs"
            overflow = f"overflow in {runs}, which left {self.unit} out: raise capacity"
            lines.append(f"  in {runs} {self.fault}" if self.fault else f"  {overflow}")
        not_run = self.passed_over | self.against
        reasons = {reason: list[str]() for reason in not_run.values()}
        for name, reason in not_run.items():
            reasons[reason].append(name)
        lines += [f"  not {', '.join(names)}: {reason}" for reason, names in reasons.items()]
        return "\n".join(lines)

    def _counted(self, count: int, *, dense: bool) -> str:
        if not self.n_tiles:
            return f"no {self.unit}" if self.unit != "blocks" else "no mask: everything"
        if count > self.n_tiles:  # tiles of components, which are placed anywhere
            return f"{count} {self.unit}; the grid has {self.n_tiles}"
        share = 100 * count / self.n_tiles
        skipped = "nothing" if dense else max(self.n_tiles - count, 0)
        return f"{count} of {self.n_tiles} {self.unit} ({share:.1f} %), skipped {skipped}"


@dataclasses.dataclass
class Explanation(Generic[Result]):
    """The calls of one run, in the order in which they were traced, and the function's result.

    `communication` says which sharded operands a mesh of Auto axes gathers for a call, and why; a
    call that a mesh splits without that is not in it.
    """

    calls: list[Call]
    result: Result
    communication: list[str] = dataclasses.field(default_factory=list)

    @property
    def work(self) -> Work:
        """The sum over the calls of the most that each multiplies and moves, from its shapes. XLA's
        `cost_analysis` counts no custom call.
        """
        known = [call.work for call in self.calls if call.work is not None]
        return Work(sum(w.flops for w in known), sum(w.bytes for w in known))

    def __str__(self) -> str:
        calls = "\n".join(map(str, self.calls)) or "no call of a jaxsparse op"
        return "\n".join([calls, *(f"communicates: {line}" for line in self.communication)])


_tokens = itertools.count()
_open: dict[int, list[Call]] = {}
_gathered: dict[int, list[str]] = {}


def _hear(op: str, sentence: str) -> None:
    token = settings().explain
    if token in _gathered:
        _gathered[token].append(f"{op}: {sentence}")


listen(_hear)


@overload
def explain(
    fn: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Explanation[Result]: ...


@overload
def explain(
    fn: Callable[..., Result],
    *args: object,
    static_argnames: str | Iterable[str] | None,
    **kwargs: object,
) -> Explanation[Result]: ...


def explain(
    fn: Callable[..., Result],
    *args: object,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: object,
) -> Explanation[Result]:
    """Run `fn(*args, **kwargs)` under jit and report each call of an op in it.

    Args:
        fn: a function that may be jitted; arrays that it closes over are constants.
        *args: its arguments, arrays or pytrees of arrays.
        static_argnames: names of the arguments of `fn` that are not arrays, as in `jax.jit`.
        **kwargs: its keyword arguments.

    Returns:
        An Explanation; print it. Each Call says which implementation and variant ran, how many
        tiles (rows, blocks: its `unit`) were active and skipped, and why the other implementations
        and variants did not run. Tiles past the index's capacity count as active; a line about the
        overflow says that some were left out. Blocks are those of all masks of a product, added up.
        The calls are those of the forward pass. Of the gradients only that of a convolution's
        kernel is listed, with the counts of the forward pass's index, even if the function does not
        compute it. An index that an op builds itself is not listed.

    Raises:
        TypeError: when `fn` is not callable; for a string among the arguments that is not named in
            `static_argnames`.
    """
    if not callable(fn):
        raise TypeError(f"explain: fn must be callable, not {type(fn).__name__}")
    _check_static(args, kwargs, static_argnames)
    token = next(_tokens)
    _open[token], _gathered[token] = [], []
    try:
        with override(explain=token):
            result = jax.block_until_ready(
                jax.jit(fn, static_argnames=static_argnames)(*args, **kwargs)
            )
            jax.effects_barrier()
        return Explanation(_open[token], result, _gathered[token])
    finally:
        del _open[token], _gathered[token]


def _check_static(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    static_argnames: str | Iterable[str] | None,
) -> None:
    """A string is not an array: it is named, or not an argument."""
    if static_argnames is None:
        for name, value in kwargs.items():
            if isinstance(value, str):
                raise TypeError(
                    f"explain: {name}={value!r} is not an array: add static_argnames={name!r}"
                )
        for place, value in enumerate(args):
            if isinstance(value, str):
                raise TypeError(
                    f"explain: argument {place} of fn, {value!r}, is not an array: give it by "
                    "name, and that name in static_argnames="
                )


def watched() -> bool:
    """Whether `explain` is watching this trace."""
    return settings().explain in _open


def record(
    op: str,
    shapes: str,
    implementations: Mapping[str, str],
    choose: Callable[[str], tuple[Choice | None, dict[str, str]]] | None,
    index: Any,
    unit: str = "tiles",
    work: Callable[[], Work] | None = None,
    parts: Parts | None = None,
) -> None:
    """Note a call, when `explain` is watching this trace.

    `implementations` is platform -> implementation; `choose(implementation)` gives its choice and
    what speaks against other variants (None: the op has no variants). `index`, or what it returns
    when called, has n_tiles, count and overflow, in `unit`s (None: nothing is counted). `work`
    gives the most that the call does; `parts` is of its channels.
    """
    token = settings().explain
    if token is None or token not in _open:
        return
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    name = implementations.get(platform, implementations.get("other", "reference"))
    choice, against = choose(name) if choose else (None, {})
    passed_over = {n: why for n, why in _other_variants(choice).items() if n not in against}
    against = {**against, **_other_implementations(op, name, platform)}
    index = index() if callable(index) else index
    n_tiles, fault = getattr(index, "n_tiles", 0), getattr(index, "fault", "")
    call = Call(op, shapes, name, choice, against, n_tiles, unit=unit, fault=fault)
    call.passed_over = passed_over
    call.work = work() if work else None
    # A Call outlives the trace; the counts are its callback's.
    call.parts = None if parts is None else dataclasses.replace(parts, counts=())
    _open[token].append(call)
    if index is None:
        return

    def ran(overflow: np.ndarray, active: Sequence[np.ndarray], *counts: np.ndarray) -> None:
        call.active.append(tuple(map(int, active)))
        call.counts.append(int(counts[0]))
        call.lists.append(tuple(map(int, counts)))
        call.overflows += int(overflow)

    others = [other.count for other in getattr(index, "others", ())]
    active = () if parts is None else parts.counts
    jax.debug.callback(ran, index.overflow, active, index.count, *others)


def _other_variants(choice: Choice | None) -> dict[str, str]:
    """Why the variants that take the problem, and are not chosen, did not run."""
    if choice is None:
        return {}
    chosen = {rung.variant for rung in choice.rungs} | {c.variant for c in choice.candidates}
    against = {}
    for name in choice.names:
        if name in chosen:
            continue
        if choice.candidates:
            why = "not among the candidates of the kernel's own choice"
        elif len(choice.rungs) > 1:
            why = "not among the branches of lax.switch"
        else:
            why = f"possible, too; {choice.first} is chosen ({choice.reason_why})"
        us, next_us = choice.us, choice.runner_up_us
        if name == choice.runner_up and us is not None and next_us is not None:
            slower = "estimated " if next_us < us else ""  # a measured choice, beside fitted rates
            why += f", at {slower}{us:.1f} us on average; this one at {next_us:.1f}"
        against[name] = why
    return against


def _other_implementations(op: str, name: str, platform: str) -> dict[str, str]:
    """Why the implementations of `op` other than `name` did not run on `platform`."""
    against = {}
    for other in NAMES:
        if other == name:
            continue
        why = reason_against(other, offered_by(op), device=True)
        if why is None and other not in ("reference", platform):
            why = f"JAX runs on {platform} here"
        if why is None and NAMES.index(other) < NAMES.index(name):
            why = f"implementation= asks for {name}"
        against[other] = why or f"{name} comes first"
    return against


@dataclasses.dataclass(frozen=True)
class Counted:
    """What `record` counts of an op without an index: `count` int32[] of `n_tiles` units."""

    n_tiles: int
    count: jax.Array
    overflow: Any = False


def count_of(mask: jax.Array) -> Counted:
    """What a mask holds, each entry a unit."""
    return Counted(mask.size, mask.sum(dtype=np.int32))


def check_overflow(op: str, index: Any) -> None:
    """Under `js.checked()`: raise when the index holds more tiles than its capacity, or was built
    on a mesh and then moved to one device.
    """
    if not settings().checked:
        return
    _check_whole(op, index)
    if not index.may_overflow:
        return

    def raise_if(count: np.ndarray, overflow: np.ndarray) -> None:
        if overflow:
            raise ValueError(
                f"{op}: the index has {int(count)} active tiles and a capacity of "
                f"{index.capacity}; what is past the capacity was not computed"
            )

    raise_on_host(raise_if, index.count, index.overflow)


def _check_whole(op: str, index: Any) -> None:
    """Raise for a list of several shards on one device, of a call that is not traced."""
    arrays = index.ids, index.count
    if any(isinstance(a, Tracer) or not hasattr(a, "devices") for a in arrays):
        return
    ids = index.ids
    if ids.ndim not in (1, 2) or len(ids.devices()) != 1:
        return
    listed = np.asarray(ids).reshape(index.capacity, -1)[: int(index.count), 0]
    if (listed < 0).any():
        raise ValueError(
            f"{op}: the index was built of a mask that is sharded over a mesh, and moved to one "
            "device: -1 stands between the shards' tiles. Build it of the mask on that device"
        )
