"""`grouped_matmul`: the public function. Checks at trace time, then hands arrays to the
differentiable core.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_float,
    check_offsets,
    check_rank,
    result_dtype,
)
from jaxsparse.core.integers import as_int32, check_count
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Shaped
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import implementation_key, plan
from jaxsparse.index.experts import Routing
from jaxsparse.ops.grouped_matmul.core import GroupedParams, matmul
from jaxsparse.ops.grouped_matmul.run import OFFERED, describe, sorted_rows
from jaxsparse.ops.grouped_matmul.watch import RowCount, check_rows
from jaxsparse.select.explain import record
from jaxsparse.select.work import result, work

MOST_SORTED_ROWS = 2**31 - 1024  # the kernels' counters reach past the last one


@takes_variables
def grouped_matmul(
    lhs: Float[ArrayLike, "m k"],
    rhs: Float[ArrayLike, "g k n"],
    group_sizes: Int[ArrayLike, "g"],
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: None = None,
    out_sharding: None = None,
    *,
    gather: Int[ArrayLike, "m'"] | None = None,
    scatter: Int[ArrayLike, "m'"] | None = None,
    row_weights: Float[ArrayLike, "m'"] | None = None,
    num_rows: int | None = None,
    implementation: Implementation = None,
) -> Float[Array, "rows n"]:
    """A product for each group of rows: `jax.lax.ragged_dot`, with the rows' gather, scale and
    combine fused.

    The first `group_sizes[0]` sorted rows are multiplied by `rhs[0]`, the next `group_sizes[1]` by
    `rhs[1]`, and so on. Sorted row i is `lhs[gather[i]]` (without `gather`: `lhs[i]`); times
    `row_weights[i]` it is added to row `scatter[i]` of the result (without `scatter`: it is row
    i). No permuted copy of lhs is written, and the combine needs no atomics: it adds in the sorted
    order, so results repeat bit by bit. Differentiable in lhs, rhs and row_weights, through the
    same kernels, in reverse and forward mode. The arguments are in `ragged_dot`'s order; operands
    of two dtypes, of integers or float64, and a result narrower than the operands are refused.

    Bad data has a defined result: a negative group size counts as zero; groups that reach past the
    last sorted row are cut off there; a sorted row that no group owns, or whose gather or scatter
    index is out of range, is never read or written and contributes nothing (`js.checked()` raises
    instead). Rows of the result that nothing is added to are zero.

    Args:
        lhs: float32, bfloat16 or float16 [m, k].
        rhs: same dtype as lhs, [g, k, n].
        group_sizes: any integer dtype [g].
        precision: as in jax.lax; float32 is multiplied as "highest" or as the platform's default.
        preferred_element_type: the result's dtype: lhs's dtype (default) or float32. Sums are
            float32 in any case; with `scatter` and a 16-bit result a GPU rounds each sorted row's
            product to it before the rows are summed up (float32 avoids that rounding).
        group_offset: None; an argument of `ragged_dot` that is not supported.
        out_sharding: None; an argument of `ragged_dot` that is not supported.
        gather: integers [m']: the row of lhs that each sorted row reads. Without it, m' = m.
        scatter: integers [m']: the row of the result that each sorted row is summed into;
            duplicates add up.
        row_weights: floats [m'], applied in float32.
        num_rows: rows of the result; only with `scatter`. None means m.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [m', n], or with `scatter` [num_rows, n].

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    for name, value in (("group_offset", group_offset), ("out_sharding", out_sharding)):
        if value is not None:
            raise ValueError(f"{name} is not taken; it must be None")
    if is_symbolic(lhs):
        options = (precision, preferred_element_type, implementation)
        places = {"gather": gather, "scatter": scatter, "num_rows": num_rows}
        return _in_pieces(lhs, rhs, group_sizes, row_weights, options, places)
    if isinstance(group_sizes, Routing):
        raise TypeError(
            "group_sizes is a Routing; it takes an array: routing.group_sizes, with "
            "gather=routing.gather where lhs holds the tokens in their own order"
        )
    for name, value, rank in (("lhs", lhs, 2), ("rhs", rhs, 3), ("group_sizes", group_sizes, 1)):
        check_rank(name, value, rank)
    lhs, rhs = as_array("lhs", lhs), as_array("rhs", rhs)
    check_float("lhs", lhs)
    if rhs.dtype != lhs.dtype:
        raise TypeError(
            f"rhs has dtype {rhs.dtype}, lhs has {lhs.dtype}: they must be equal: "
            "rhs.astype(lhs.dtype)"
        )
    if rhs.shape[1] != lhs.shape[1]:
        raise ValueError(f"rhs has shape {rhs.shape}; lhs {lhs.shape} needs [g, {lhs.shape[1]}, n]")
    sizes = _integers("group_sizes", group_sizes)
    if sizes.shape[0] != rhs.shape[0]:
        raise ValueError(f"group_sizes has {sizes.shape[0]} entries; rhs has {rhs.shape[0]} groups")
    gather = None if gather is None else _integers("gather", gather)
    scatter = None if scatter is None else _integers("scatter", scatter)
    rows = lhs.shape[0] if gather is None else gather.shape[0]
    if scatter is not None and scatter.shape[0] != rows:
        raise ValueError(f"scatter has {scatter.shape[0]} entries; there are {rows} sorted rows")
    if row_weights is not None:
        check_rank("row_weights", row_weights, 1)
        row_weights = as_array("row_weights", row_weights)
        check_float("row_weights", row_weights)
        if row_weights.shape[0] != rows:
            raise ValueError(
                f"row_weights has {row_weights.shape[0]} entries; there are {rows} sorted rows"
            )
        row_weights = row_weights.astype(jnp.float32)
    if rows > MOST_SORTED_ROWS:
        raise ValueError(f"there are {rows} sorted rows; 2^31 - 1024 are supported")
    out_dtype = result_dtype(preferred_element_type, lhs.dtype)
    height = _height(num_rows, lhs, rows, scatter)
    for name, shape in (
        ("lhs", lhs.shape),
        ("rhs", rhs.shape),
        ("the result", (height, rhs.shape[2])),
    ):
        check_offsets(name, shape)
    implementations = plan("grouped_matmul", implementation, OFFERED)
    params = GroupedParams(
        height,
        False,
        canonical_precision(precision),
        out_dtype.name,
        implementation_key(implementation),
    )
    check_rows(lhs.shape[0], height, sizes, gather, scatter, rows)
    record(
        "grouped_matmul",
        f"{lhs.dtype.name}{list(lhs.shape)} * {list(rhs.shape)} -> {[height, rhs.shape[2]]}",
        implementations,
        lambda name: describe(params, name, lhs, rhs, sizes, sorted_rows(lhs, gather, scatter)),
        lambda: RowCount.of(sizes, rows, (gather, lhs.shape[0]), (scatter, height)),
        "rows",
        lambda: work(
            rows * rhs.shape[1] * rhs.shape[2], lhs, rhs, result((height, rhs.shape[2]), out_dtype)
        ),
    )
    return _run(params, *lift(lhs, rhs, sizes, gather, scatter, row_weights))


def _in_pieces(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    row_weights: ArrayLike | None,
    options: tuple[Any, ...],
    places: dict[str, ArrayLike | None],
) -> jax.Array:
    """`grouped_matmul` of a number of rows that is a symbol: every piece has groups of its own."""
    rows, given = np.shape(lhs)[0], [name for name, value in places.items() if value is not None]
    shape = ", ".join(map(str, np.shape(lhs)))
    if given:
        raise ValueError(
            f"lhs has shape [{shape}] and {given[0]} is given, which names rows of the whole: "
            "where the number of rows is a symbol, gather and scatter with jax.numpy"
        )
    sizes = jnp.maximum(_integers("group_sizes", group_sizes), 0)
    last = jnp.asarray(rows, jnp.int32)  # a group that reaches past the last row is cut off
    ends = jax.lax.associative_scan(lambda a, b: a + jnp.minimum(b, last - a), sizes)
    starts = jnp.arange(rows, dtype=jnp.int32)

    def piece(lhs: jax.Array, row: jax.Array, row_weights: jax.Array | None) -> jax.Array:
        inside = jnp.clip(ends - row[0], 0, row.shape[0])
        sizes = jnp.diff(inside, prepend=jnp.zeros(1, jnp.int32))
        precision, preferred_element_type, implementation = options
        return grouped_matmul(
            lhs,
            rhs,
            sizes,
            precision,
            preferred_element_type,
            row_weights=row_weights,
            implementation=implementation,
        )

    why = "the product's depth sets the kernel's steps"
    values = {"lhs": lhs, "row": starts, "row_weights": row_weights}
    found: jax.Array = in_pieces(piece, values, 4096, rest=why)
    return found


@functools.partial(jax.jit, static_argnums=0)
def _run(
    params: GroupedParams,
    lhs: jax.Array,
    rhs: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    row_weights: jax.Array | None,
) -> Any:
    return matmul(params, lhs, rhs, group_sizes, gather, scatter, row_weights)


def _integers(name: str, value: ArrayLike) -> jax.Array:
    """`value` as int32 with one axis; a number that int32 cannot hold stays out of every range."""
    check_rank(name, value, 1)
    return as_int32(name, value)


def _height(num_rows: int | None, lhs: Shaped, rows: int, scatter: Shaped | None) -> int:
    if num_rows is None:
        return rows if scatter is None else lhs.shape[0]
    if scatter is None:
        raise ValueError(f"num_rows={num_rows} needs scatter: else the result has {rows} rows")
    return check_count("num_rows", num_rows)
