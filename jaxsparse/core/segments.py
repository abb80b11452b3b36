"""Gathers by a pattern and sums over it, each the transpose of the other: in whatever order XLA
adds, or in one order, so that results repeat bit by bit.

XLA's scatter-add on a GPU adds by atomics. In order, entries are sorted by the place that they are
added to, a segmented scan adds them up in a tree, and the last of each place is its sum.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsparse.core.linear import Leaves, Linear, linear_map


class Segments(NamedTuple):
    """Which of n places each entry reads, or is added to.

    Attributes:
        ids: int32[entries], 0 <= id < n.
        order: int32[entries] that sorts them, None: they are sorted; of an ordered sum.
        ends: int32[n], where the last entry of a place is among the sorted ones; -1: it has none.
            None: sums in any order.
    """

    ids: jax.Array
    order: jax.Array | None = None
    ends: jax.Array | None = None


def segments(ids: jax.Array, n: int, *, ordered: bool, ascending: bool = False) -> Segments:
    """The pattern of `ids` among n places; `ordered`: sums over it repeat bit by bit. `ascending`:
    the ids are in order.
    """
    if not ordered:
        return Segments(ids)
    counts = jnp.zeros(n, jnp.int32).at[ids].add(1)
    ends = jnp.where(counts > 0, jnp.cumsum(counts, dtype=jnp.int32) - 1, -1)
    return Segments(ids, None if ascending else jnp.argsort(ids, stable=True), ends)


def owners(starts: jax.Array, entries: int) -> jax.Array:
    """int32[entries]: the row of each entry, where row i starts at `starts`[i]; those past the last
    row are the last's.
    """
    begun = jnp.zeros(entries + 1, jnp.int32).at[starts[:-1]].add(1, mode="drop")
    return jnp.cumsum(begun, dtype=jnp.int32)[:entries] - 1


def gather(values: jax.Array, by: Segments) -> jax.Array:
    """`values[by.ids]`, values [n, ...] -> [entries, ...]."""
    if by.ends is None:
        return values[by.ids]
    like = _sized(values, by.ids.shape[0])
    (found,) = linear_map(_Gather(like), [v for v in by if v is not None], [values])
    return found


def add_up(values: jax.Array, by: Segments, n: int) -> jax.Array:
    """The sum of the entries of each place, values [entries, ...] -> [n, ...]."""
    if by.ends is None:
        return jax.ops.segment_sum(values, by.ids, n)
    (found,) = linear_map(_AddUp(_sized(values, n)), [v for v in by if v is not None], [values])
    return found


def _sized(like: jax.Array, first: int) -> Any:
    return jax.typeof(like).update(shape=(first, *like.shape[1:]), weak_type=False)


@dataclasses.dataclass(frozen=True)
class _Gather:
    """The gather as a linear map; `saved` are the arrays of ordered `Segments`."""

    like: Any

    @property
    def types(self) -> tuple[Any, ...]:
        return (self.like,)

    def __call__(self, saved: Leaves, given: Leaves) -> list[Any]:
        return [given[0][saved[0]]]

    def some(self, moving: Sequence[bool]) -> Linear | None:
        return None

    def transposed(self, types: tuple[Any, ...]) -> Linear:
        return _AddUp(types[0])


@dataclasses.dataclass(frozen=True)
class _AddUp:
    """The ordered sum as a linear map."""

    like: Any

    @property
    def types(self) -> tuple[Any, ...]:
        return (self.like,)

    def __call__(self, saved: Leaves, given: Leaves) -> list[Any]:
        (values,), ids, ends = given, saved[0], saved[-1]
        if 0 in values.shape:
            return [jnp.zeros(self.like.shape, values.dtype)]
        if len(saved) == 3:
            values, ids = values[saved[1]], ids[saved[1]]
        behind = (1,) * (values.ndim - 1)
        first = jnp.concatenate([jnp.ones(1, bool), ids[1:] != ids[:-1]])
        sums = _scan(first.reshape(-1, *behind), values)
        sums = sums[jnp.maximum(ends, 0)]
        return [jnp.where((ends >= 0).reshape(-1, *behind), sums, jnp.zeros_like(sums))]

    def some(self, moving: Sequence[bool]) -> Linear | None:
        return None

    def transposed(self, types: tuple[Any, ...]) -> Linear:
        return _Gather(types[0])


@jax.jit  # outside of jit, each step of the scan would be compiled alone
def _scan(first: jax.Array, values: jax.Array) -> jax.Array:
    """Running sums that start again where `first` is set; a NaN stays in its segment."""

    def join(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> Any:
        begun, sums = b
        return a[0] | begun, jnp.where(begun, sums, a[1] + sums)

    return jax.lax.associative_scan(join, (first, values))[1]
