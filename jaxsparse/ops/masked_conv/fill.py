"""`fill_rows`: rows of a small table in chosen rows of a result, the others left as they are."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import entries, fold, unfold
from jaxsparse.core.differentiable import Fact, differentiable
from jaxsparse.ffi import Implementation, Rule, absent, dispatch, ffi_call, partitioned
from jaxsparse.ops.grouped_matmul.core import GroupedParams, drhs
from jaxsparse.ops.route.api import route

#: Entries of a table up to which its gradient is a sum for each; for more, rows are sorted first.
FEW = 8


def fill_rows(
    base: jax.Array | None, table: jax.Array, select: jax.Array, implementation: Implementation
) -> jax.Array:
    """Row by row `table[select]`, or `base` where `select` is -1.

    Differentiable in base and table; the table's gradient is the same bit by bit every time, and
    reads the cotangent once (once for each entry of a table of at most `FEW`).

    Args:
        base: [rows, n], whose buffer becomes the result's where it may be donated; None: rows that
            are not selected hold anything.
        table: [entries, n] of base's dtype.
        select: int32[rows], less than `entries`; -2 - entry where the row is never read, so that it
            need not be written.
        implementation: as every op takes it.

    Returns:
        [rows, n].
    """
    given = () if base is None else (base,)
    return _fill(implementation, table, select, *given)


@differentiable()
def _fill(
    implementation: Implementation, table: jax.Array, select: jax.Array, *base: jax.Array
) -> jax.Array:
    return _batched(implementation)(table, select, *base)


def _forward(
    implementation: Implementation, table: jax.Array, select: jax.Array, *base: jax.Array
) -> Any:
    saved = select, Fact((len(table), table.dtype.name, bool(base)))
    return _fill(implementation, table, select, *base), saved


def _backward(implementation: Implementation, saved: Any, g: jax.Array) -> Any:
    select, fact = saved
    count, dtype, based = fact.value
    entry = _entries(select)
    chosen = (entry >= 0)[:, None]
    nothing = jnp.zeros_like(g)
    sums = _sums(entry, g, count, implementation)
    left = (jnp.where(chosen, nothing, g),) if based else ()
    return (sums.astype(dtype), None, *left)


def _sums(
    entry: jax.Array, g: jax.Array, entries: int, implementation: Implementation
) -> jax.Array:
    """float32[entries, n]: of each entry the rows of g that have it, in a fixed order: a scatter
    adds in any on a GPU."""
    if entries > FEW:
        routing = route(entry[:, None], entries, implementation=implementation)
        ones = jnp.ones((len(g), 1), jnp.float32)
        params = GroupedParams(entries, False, "highest", "float32", implementation)
        rows = g.astype(jnp.float32)
        found: Any = drhs(
            params, ones, rows, routing.group_sizes, routing.order, routing.order, None
        )
        return found[:, 0]

    def total(k: jax.Array) -> jax.Array:
        return jnp.where((entry == k)[:, None], g, jnp.zeros_like(g)).astype(jnp.float32).sum(0)

    return jax.lax.map(total, jnp.arange(entries, dtype=np.int32))


def _tangent(implementation: Implementation, saved: Any, tangents: Any) -> Any:
    """Linear in the table and the base together."""
    select, fact = saved
    _, dtype, based = fact.value
    dtable, _, *dbase = tangents
    if dtable is None:
        return jnp.where((_entries(select) >= 0)[:, None], jnp.zeros((), dtype), dbase[0])
    if based and dbase[0] is None:
        dbase = [jnp.zeros((select.shape[0], dtable.shape[1]), dtype)]
    return _fill(implementation, dtable, select, *dbase)


_fill.defrules(_forward, _tangent, _backward)


@functools.cache
def _batched(implementation: Implementation) -> Any:
    """The call with its vmap rule: batches are rows, their tables one after the other."""

    @custom_vmap
    def run(table: jax.Array, select: jax.Array, *base: jax.Array):
        alone = dispatch(
            "fill_rows", implementation, cuda=fill_native, cpu=_reference, reference=_reference
        )
        rows = ["r ."] * len(base)
        names = ["recorder"] * (2 + len(base))
        rule = Rule("masked_conv", (". .", "r", *rows), ("r .",), ("r",), tuple(names))
        return partitioned(rule, alone, lambda _, *given: alone(*given))(table, select, *base)

    @run.def_vmap
    def rule(
        axis_size: int,
        in_batched: Sequence[bool],
        table: jax.Array,
        select: jax.Array,
        *base: jax.Array,
    ):
        tables = fold(table, in_batched[0], axis_size)
        rows = select if in_batched[1] else jnp.broadcast_to(select, (axis_size, *select.shape))
        first = jnp.arange(axis_size, dtype=np.int32)[:, None] * entries(table, in_batched[0])
        moved = jnp.where(rows >= 0, rows + first, rows - first)
        rows = jnp.where(rows == -1, -1, moved).reshape(-1)
        given = [fold(b, f, axis_size) for b, f in zip(base, in_batched[2:], strict=True)]
        each = entries(select, in_batched[1])
        return unfold(run(tables, rows, *given), axis_size, each), True

    return run


def fill_native(table: jax.Array, select: jax.Array, *base: jax.Array) -> jax.Array:
    """`fill_rows` by the CUDA handler alone, on the arrays of one device."""
    shape = (select.shape[0], table.shape[1])
    aliases = {0: 0} if base else None
    start = absent(next(iter(base), None), table.dtype, (0, table.shape[1]))
    return ffi_call(
        "jaxsparse_fill_rows",
        [(shape, table.dtype)],
        start,
        table,
        select,
        input_output_aliases=aliases,
    )[0]


def _reference(table: jax.Array, select: jax.Array, *base: jax.Array) -> jax.Array:
    entry = _entries(select)
    rows = table[jnp.maximum(entry, 0)]
    return jnp.where((entry >= 0)[:, None], rows, base[0]) if base else rows


def _entries(select: jax.Array) -> jax.Array:
    return jnp.where(select < -1, -2 - select, select)
