"""The places in a function where a variant is chosen: what the tuner needs to run each of them
again on other data.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from jaxsparse.select.choice import Choice
from jaxsparse.select.config import override, settings
from jaxsparse.select.problem import Problem


@dataclasses.dataclass(frozen=True)
class Site:
    """One choice among variants.

    `branches` is name -> function of the operands; `operands` holds the shapes
    (`jax.ShapeDtypeStruct`) of the arrays it was traced with, a `TileIndex` among them where the op
    has one; `choice` is what was chosen.
    """

    problem: Problem
    branches: Mapping[str, Callable[..., Any]]
    operands: tuple[Any, ...]
    choice: Choice | None = None


_tokens = itertools.count(-1, -1)  # never one of explain's
_open: dict[int, list[Site]] = {}
#: (site, its traced operands, its count on the device: of what `Problem.n_tiles` are all)
Listener = Callable[[Site, tuple[Any, ...], jax.Array], None]
_listeners: dict[int, Listener] = {}


@contextlib.contextmanager
def watching() -> Iterator[list[Site]]:
    """Collect the sites that are traced inside the `with` block."""
    token = next(_tokens)
    _open[token] = []
    try:
        with override(explain=token):
            yield _open[token]
    finally:
        del _open[token]


@contextlib.contextmanager
def listening(see: Listener) -> Iterator[None]:
    """Call `see` with every site that is traced inside the `with` block, and its traced operands
    and count.
    """
    token = next(_tokens)
    _listeners[token] = see
    try:
        with override(explain=token):
            yield
    finally:
        del _listeners[token]


def watch(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Site]:
    """The sites of `fn(*args, **kwargs)`, backward passes included, in the order of tracing.
    Nothing is computed.

    Args:
        fn: a function that may be jitted.
        *args, **kwargs: its arguments: arrays, their shapes, or pytrees of them.

    Returns:
        The sites of every platform that an op may be lowered for; equal calls that share a trace
        come once.
    """
    with watching() as sites:
        # Backward passes are traced when they are lowered.
        jax.jit(fn).trace(*args, **kwargs).lower()
        return list(sites)


def note(
    problem: Problem,
    branches: Mapping[str, Callable[..., Any]],
    operands: tuple[Any, ...],
    choice: Choice | None,
    count: jax.Array,
) -> None:
    """Called by `select` for every choice: keep it when this trace is watched."""
    token = settings().explain or 0
    if token not in _listeners and token not in _open:
        return
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), operands)
    site = Site(problem, dict(branches), shapes, choice)
    if token in _listeners:
        _listeners[token](site, operands, count)
    if token in _open:
        _open[token].append(site)
