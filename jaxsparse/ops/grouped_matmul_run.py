"""How the grouped products run: vmap as a loop, a platform's implementation, a call's variant."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ops.batching import loop_over
from jaxsparse.reference import grouped_matmul as reference
from jaxsparse.select import Problem, choose
from jaxsparse.select.select import select
from jaxsparse.select.variants import table

#: The implementations that these ops offer.
OFFERED = ("cpu", "reference")
_ALIGN = 64
_MAX_WORKERS = 64


@dataclasses.dataclass(frozen=True)
class GroupedParams:
    """What is static about one call: `num_rows` is the height of the result, `transpose_rhs`
    multiplies by rhs[g].T.
    """

    num_rows: int
    transpose_rhs: bool
    precision: str
    out_dtype: str
    implementation: Implementation = None

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT


def sorted_rows(lhs: Any, gather: Any, scatter: Any) -> int:
    """How many sorted rows there are."""
    given = next((v for v in (gather, scatter) if v is not None), lhs)
    return given.shape[0]


def matmul(p: GroupedParams) -> Callable[..., jax.Array]:
    """(lhs, rhs, group_sizes, gather, scatter, row_weights) -> out, with its vmap rule."""

    @custom_vmap
    def run(*args):
        offered = {"cpu": _native, "reference": _reference}
        return dispatch(
            "grouped_matmul",
            p.implementation,
            **{name: functools.partial(f, p) for name, f in offered.items()},
        )(*args)

    @run.def_vmap
    def rule(axis_size, in_batched, *args):
        return loop_over(matmul(p), args, in_batched), True

    return run


def drhs(p: GroupedParams) -> Callable[..., jax.Array]:
    """A function (lhs, gy, group_sizes, gather, scatter, row_weights) -> float32[g, k, n] with its
    vmap rule.
    """

    @custom_vmap
    def run(*args):
        offered = {"cpu": _native_drhs, "reference": _reference_drhs}
        return dispatch(
            "grouped_matmul_drhs",
            p.implementation,
            **{name: functools.partial(f, p) for name, f in offered.items()},
        )(*args)

    @run.def_vmap
    def rule(axis_size, in_batched, *args):
        return loop_over(drhs(p), args, in_batched), True

    return run


def problem_of(lhs: Any, outputs: int, group_sizes: Any, rows: int) -> Problem:
    """What the tuning tables know a grouped product by."""
    features = {
        "rows": rows,
        "depth": lhs.shape[1],
        "outputs": outputs,
        "groups": group_sizes.shape[0],
    }
    return Problem("grouped_matmul", "cpu", lhs.dtype.name, features, rows)


def describe(name: str, lhs: Any, rhs: Any, group_sizes: Any, rows: int):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    return choose(
        problem_of(lhs, rhs.shape[2], group_sizes, rows), table("grouped_matmul", name)
    ), {}


def _native(p: GroupedParams, lhs, rhs, group_sizes, gather, scatter, row_weights):
    outputs = rhs.shape[1] if p.transpose_rhs else rhs.shape[2]
    rows = sorted_rows(lhs, gather, scatter)
    shape = (p.num_rows, outputs)
    sums = (
        4 * (p.num_rows * outputs + 16) if scatter is not None and p.out_dtype != "float32" else 0
    )
    scratch = cpu_scratch(lhs.shape[1], group_sizes.shape[0], sums)

    def call(variant: str, *args: Any) -> jax.Array:
        lhs, rhs, group_sizes, gather, scatter, row_weights = args
        return ffi_call(
            "jaxsparse_grouped_matmul",
            [(shape, p.out_dtype), ((scratch,), np.uint8)],
            lhs,
            rhs,
            group_sizes,
            *_present(gather, scatter, row_weights),
            sorted_rows=rows,
            scatters=scatter is not None,
            transpose_rhs=p.transpose_rhs,
            precision=int(p.precision == "highest"),
            variant=table("grouped_matmul", "cpu")[variant].number,
        )[0]

    problem = problem_of(lhs, outputs, group_sizes, rows)
    branches = {name: functools.partial(call, name) for name in table("grouped_matmul", "cpu")}
    run = select(problem, branches, group_sizes.sum())
    return run(lhs, rhs, group_sizes, gather, scatter, row_weights)


def _native_drhs(p: GroupedParams, lhs, gy, group_sizes, gather, scatter, row_weights):
    shape = (group_sizes.shape[0], lhs.shape[1], gy.shape[1])
    return ffi_call(
        "jaxsparse_grouped_matmul_drhs",
        [(shape, np.float32), ((cpu_drhs_scratch(shape[0]),), np.uint8)],
        lhs,
        gy,
        group_sizes,
        *_present(gather, scatter, row_weights),
        sorted_rows=sorted_rows(lhs, gather, scatter),
        precision=int(p.precision == "highest"),
        variant=0,
    )[0]


def _present(gather: Any, scatter: Any, row_weights: Any) -> tuple[jax.Array, ...]:
    none = jnp.zeros(0, jnp.int32)
    return (
        none if gather is None else gather,
        none if scatter is None else scatter,
        jnp.zeros(0, jnp.float32) if row_weights is None else row_weights,
    )


def cpu_scratch(depth: int, groups: int, sums: int = 0) -> int:
    """Workspace of the CPU handler: spans, sums, and per worker the strips of a chunk and a group
    of panels.
    """
    strips = 4 * (min(max((128 << 10) // max(depth, 1), 24), 192) + 12) * (-(-depth // 64) * 64)
    panels = 4 * depth * min(max((256 << 10) // max(depth, 1), 64), 512)
    return 16 * (groups + 1) + sums + _workers() * (strips + panels + 4 * _ALIGN) + 8 * _ALIGN


def cpu_drhs_scratch(groups: int) -> int:
    """Workspace of the CPU's drhs handler: spans, per worker a block of rows of both operands."""
    return (
        16 * (groups + 1) + _workers() * (4 * 256 * (96 + 256) + 16 * 256 + 4 * _ALIGN) + 8 * _ALIGN
    )


def _workers() -> int:
    """Workers that the scratch has room for; the handler takes as many as its pool has."""
    return min(os.cpu_count() or 1, _MAX_WORKERS)


def _reference(p: GroupedParams, lhs, rhs, group_sizes, gather, scatter, row_weights):
    return reference.grouped_matmul(
        lhs,
        jnp.swapaxes(rhs, 1, 2) if p.transpose_rhs else rhs,
        group_sizes,
        _as_gather(gather, scatter, lhs),
        scatter,
        row_weights,
        num_rows=p.num_rows,
        precision=p.lax_precision,
        out_dtype=jnp.dtype(p.out_dtype),
    )


def _as_gather(gather: Any, scatter: Any, lhs: Any) -> Any:
    """An explicit gather where `scatter` speaks of another number of rows than lhs has."""
    if gather is None and scatter is not None and scatter.shape[0] != lhs.shape[0]:
        return jnp.arange(scatter.shape[0], dtype=jnp.int32)
    return gather


def _reference_drhs(p: GroupedParams, lhs, gy, group_sizes, gather, scatter, row_weights):
    rows = sorted_rows(lhs, gather, scatter)
    owned = reference.owned_rows(group_sizes, rows)
    shape = (group_sizes.shape[0], lhs.shape[1], gy.shape[1])
    x = reference.rows_of(lhs, gather, owned).astype(jnp.float32)
    g = reference.rows_of(gy, scatter, owned).astype(jnp.float32)
    if row_weights is not None:
        g = g * jnp.where(owned, row_weights, jnp.zeros_like(row_weights))[:, None]
    if 0 in (*x.shape, *shape):
        return jnp.zeros(shape, jnp.float32)
    # A row with a partner that does not exist must not enter the product with it: it may hold NaN.
    x = jnp.where(
        reference.rows_of(jnp.ones_like(gy[:, :1]), scatter, owned) > 0, x, jnp.zeros_like(x)
    )
    g = jnp.where(
        reference.rows_of(jnp.ones_like(lhs[:, :1]), gather, owned) > 0, g, jnp.zeros_like(g)
    )
    sizes = reference.clip_sizes(group_sizes, rows)
    like = jax.typeof(x).update(shape=shape)
    forward = lambda r: lax.ragged_dot(x, r, sizes, p.lax_precision, jnp.float32)  # noqa: E731
    return jax.linear_transpose(forward, like)(g)[0]
