"""How the grouped products run: vmap as a loop, a platform's implementation, a call's variant."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import loop_over
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Implementation, Rule, Shards, dispatch, partitioned
from jaxsparse.ops.grouped_matmul import native as native
from jaxsparse.ops.grouped_matmul.native import Call, Rows
from jaxsparse.reference import grouped_matmul as reference
from jaxsparse.reference import ragged
from jaxsparse.select.grouped_matmul import OP, against
from jaxsparse.select.select import choose
from jaxsparse.select.select import run as run_choice

#: The implementations that these ops offer.
OFFERED = ("cuda", "cpu", "reference")


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


def sorted_rows(lhs: Shaped, gather: Shaped | None, scatter: Shaped | None) -> int:
    """How many sorted rows there are."""
    given = next((v for v in (gather, scatter) if v is not None), lhs)
    return given.shape[0]


def matmul(p: GroupedParams) -> Callable[..., jax.Array]:
    """(lhs, rhs, group_sizes, gather, scatter, row_weights) -> out, with its vmap rule."""

    def on_any(p: GroupedParams) -> Callable[..., jax.Array]:
        return dispatch(
            "grouped_matmul",
            p.implementation,
            cuda=functools.partial(_native, p, "cuda"),
            cpu=functools.partial(_native, p, "cpu"),
            reference=functools.partial(_reference, p),
        )

    def in_shard(shards: Shards, *args: jax.Array | None) -> jax.Array:
        part = dataclasses.replace(p, out_dtype="float32") if shards.count("k") > 1 else p
        return on_any(part)(*args)

    rhs = "g n k" if p.transpose_rhs else "g k n"
    rule_of_mesh = _mesh_rule(p, ("m k", rhs), "rows n", ("lhs", "rhs"))

    @custom_vmap
    def run(*args: jax.Array | None):
        return partitioned(rule_of_mesh, on_any(p), in_shard)(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
        return loop_over(matmul(p), args, in_batched), True

    return run


def drhs(p: GroupedParams) -> Callable[..., jax.Array]:
    """A function (lhs, gy, group_sizes, gather, scatter, row_weights) -> p.out_dtype[g, k, n] with
    its vmap rule.
    """

    alone = dispatch(
        "grouped_matmul_drhs",
        p.implementation,
        cuda=functools.partial(_native_drhs, p, "cuda"),
        cpu=functools.partial(_native_drhs, p, "cpu"),
        reference=functools.partial(_reference_drhs, p),
    )
    names = ("lhs", "the result's cotangent")
    rule_of_mesh = _mesh_rule(p, ("m k", "rows n"), "g k n", names)

    @custom_vmap
    def run(*args: jax.Array | None):
        return partitioned(rule_of_mesh, alone, lambda _, *args: alone(*args))(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
        return loop_over(drhs(p), args, in_batched), True

    return run


def _mesh_rule(
    p: GroupedParams, operands: tuple[str, str], result: str, names: tuple[str, str]
) -> Rule:
    """A mesh splits the outputs n, and the features k, over which shards' results are summed."""
    rows = (
        "the rows of a group lie anywhere among all rows: split k or n, or call the op in "
        "jax.shard_map with the groups of each shard"
    )
    groups = "a row needs the weights of its group: split k or n, or see js.nn on experts"
    return Rule(
        "grouped_matmul",
        (*operands, "g", "r", "r", "r"),
        (result,),
        ("n", "k"),
        (*names, "group_sizes", "gather", "scatter", "row_weights"),
        dtype=p.out_dtype,
        why={"m": rows, "rows": rows, "r": rows, "g": groups},
    )


def describe(p: GroupedParams, name: str, lhs: Shaped, rhs: Shaped, group_sizes: Shaped, rows: int):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    call = Call(rows, rhs.shape[2], p.num_rows, False, False, p.precision, p.out_dtype)
    problem = native.problem_of(name, call, lhs, group_sizes)
    return choose(OP, problem), against(problem)


def _native(
    p: GroupedParams,
    platform: str,
    lhs: jax.Array,
    rhs: jax.Array,
    *given: jax.Array | None,
):
    outputs, taken = rhs.shape[1] if p.transpose_rhs else rhs.shape[2], Rows.of(*given)
    rows, scatters = sorted_rows(lhs, taken.gather, taken.scatter), taken.scatter is not None
    call = Call(rows, outputs, p.num_rows, scatters, p.transpose_rhs, p.precision, p.out_dtype)
    problem = native.problem_of(platform, call, lhs, taken.group_sizes)
    choice = choose(OP, problem)
    branches = {n: functools.partial(native.forward, call, platform, n) for n in choice.names}
    count = reference.clip_sizes(taken.group_sizes, rows).sum()
    return run_choice(problem.known, choice, branches, count)(lhs, rhs, *taken)


def _native_drhs(
    p: GroupedParams, platform: str, lhs: jax.Array, gy: jax.Array, *given: jax.Array | None
):
    taken = Rows.of(*given)
    rows = sorted_rows(lhs, taken.gather, taken.scatter)
    call = Call(rows, gy.shape[1], gy.shape[0], False, False, p.precision, p.out_dtype)
    return native.drhs(call, platform, lhs, gy, taken)


def _reference(p: GroupedParams, lhs: jax.Array, rhs: jax.Array, *given: jax.Array | None):
    group_sizes, gather, scatter, row_weights = Rows.of(*given)
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


def _as_gather(gather: jax.Array | None, scatter: jax.Array | None, lhs: jax.Array) -> Any:
    """An explicit gather where `scatter` has another number of rows than lhs."""
    if gather is None and scatter is not None and scatter.shape[0] != lhs.shape[0]:
        return jnp.arange(scatter.shape[0], dtype=jnp.int32)
    return gather


def _reference_drhs(p: GroupedParams, lhs: jax.Array, gy: jax.Array, *given: jax.Array | None):
    group_sizes, gather, scatter, row_weights = Rows.of(*given)
    rows = sorted_rows(lhs, gather, scatter)
    # A row with a partner that does not exist must not enter the product with it: it may hold NaN.
    picks = (gather, lhs.shape[0]), (scatter, gy.shape[0])
    counted = reference.counted_rows(group_sizes, rows, *picks)
    shape = (group_sizes.shape[0], lhs.shape[1], gy.shape[1])
    x = reference.rows_of(lhs, gather, counted).astype(jnp.float32)
    g = reference.rows_of(gy, scatter, counted).astype(jnp.float32)
    if row_weights is not None:
        g = g * jnp.where(counted, row_weights, jnp.zeros_like(row_weights))[:, None]
    if 0 in (*x.shape, *shape):
        return jnp.zeros(shape, p.out_dtype)
    sizes = reference.clip_sizes(group_sizes, rows)
    return ragged.weights_grad(x, g, sizes, p.lax_precision).astype(p.out_dtype)
