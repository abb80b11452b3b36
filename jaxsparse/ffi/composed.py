"""`Composed`: a function of differentiable ops that a mesh splits as one.

Its derivatives are split in the same way: each shard differentiates its own part, which it computes
again instead of saving what lies between the ops, and the shards' results are added up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import loop_over
from jaxsparse.core.differentiable import differentiable
from jaxsparse.ffi.call import lift
from jaxsparse.ffi.partition import Shards, partitioned
from jaxsparse.ffi.rule import Rule

_ONE = Shards({}, {})


class Composed:
    """A function of arrays (or None) to a tuple of float arrays, split by a rule.

    Attributes:
        rule: how a mesh splits it. A result is the sum of the shards' where the rule says so.
        local: (shards, *arrays) -> tuple: what one shard computes.
    """

    def __init__(self, rule: Rule, local: Callable[..., tuple[jax.Array, ...]]):
        self.rule, self.local = rule, local

    def __call__(self, *arrays: jax.Array | None) -> tuple[jax.Array, ...]:
        """The results; differentiable in the floats, in both modes and of any order."""
        return _composed(self, *lift(*arrays))

    def run(self, *arrays: jax.Array | None) -> tuple[jax.Array, ...]:
        """The results, with a vmap rule."""
        whole = functools.partial(self.local, _ONE)

        @custom_vmap
        def run(*args: jax.Array | None) -> tuple[jax.Array, ...]:
            found = partitioned(self.rule, whole, self.local)(*args)
            return found if isinstance(found, tuple) else (found,)

        @run.def_vmap
        def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
            return loop_over(run, args, in_batched), (True,) * len(self.rule.results)

        return run(*arrays)

    def tangent(self, moving: tuple[int, ...]) -> Composed:
        """Of the operands, and then of the tangents of those that move, to the results' own."""
        n = len(self.rule.operands)
        more = tuple(self.rule.operands[i] for i in moving)
        names = tuple(f"the tangent of {self.rule.names[i]}" for i in moving)

        def local(shards: Shards, *args: Any) -> tuple[jax.Array, ...]:
            moved = functools.partial(self._moved, shards, args[:n], moving)
            return jax.jvp(moved, tuple(args[i] for i in moving), args[n:])[1]

        return Composed(self._with(more, names, self.rule.results, self.rule.dtype), local)

    def backward(self, moving: tuple[int, ...]) -> Composed:
        """Of the operands and the results' cotangents, to the cotangents of those that move."""
        n = len(self.rule.operands)
        names = ("the result's cotangent",) * len(self.rule.results)
        results = tuple(self.rule.operands[i] or "" for i in moving)

        def local(shards: Shards, *args: Any) -> tuple[jax.Array, ...]:
            moved = functools.partial(self._moved, shards, args[:n], moving)
            found, pull = jax.vjp(moved, *(args[i] for i in moving))
            given = zip(args[n:], found, strict=True)
            return pull(tuple(ct.astype(value.dtype) for ct, value in given))

        return Composed(self._with(self.rule.results, names, results, None), local)

    def _moved(
        self, shards: Shards, operands: Sequence[Any], moving: tuple[int, ...], *values: Any
    ) -> tuple[jax.Array, ...]:
        changed = list(operands)
        for i, value in zip(moving, values, strict=True):
            changed[i] = value
        return self.local(shards, *changed)

    def _with(
        self,
        operands: tuple[str | None, ...],
        names: tuple[str, ...],
        results: tuple[str, ...],
        dtype: str | None,
    ) -> Rule:
        return dataclasses.replace(
            self.rule,
            operands=(*self.rule.operands, *operands),
            names=(*self.rule.names, *names),
            results=results,
            dtype=dtype,
        )


@differentiable()
def _composed(what: Composed, *arrays: jax.Array | None) -> tuple[jax.Array, ...]:
    return what.run(*arrays)


def _forward(what: Composed, *arrays: jax.Array | None):
    return _composed(what, *arrays), arrays


def _tangent(what: Composed, saved: Sequence[Any], tangents: Sequence[Any]):
    moving = tuple(i for i, tangent in enumerate(tangents) if tangent is not None)
    return what.tangent(moving)(*saved, *(tangents[i] for i in moving))


def _backward(what: Composed, saved: Sequence[Any], cts: tuple[jax.Array, ...]):
    floats = [a is not None and jnp.issubdtype(a.dtype, jnp.inexact) for a in saved]
    moving = tuple(i for i, is_float in enumerate(floats) if is_float)
    found = iter(what.backward(moving)(*saved, *cts))
    return tuple(next(found) if is_float else None for is_float in floats)


_composed.defrules(_forward, _tangent, _backward)
