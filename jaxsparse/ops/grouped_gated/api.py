"""`grouped_gated`: the first half of a mixture's experts, `silu(x @ gate) * (x @ up)`, in one pass.

Where a kernel takes the shapes, a row is gathered once for both products and neither of them is
written; elsewhere, and in the gradient, it is two grouped products.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxsparse.core.batching import loop_over
from jaxsparse.core.checks import canonical_precision
from jaxsparse.core.differentiable import differentiable, tangent_of
from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Implementation, Rule, absent, dispatch, ffi_call, lift, partitioned
from jaxsparse.ffi.platform import implementation_key, plan
from jaxsparse.ffi.register import native
from jaxsparse.ops.grouped_matmul.api import MOST_SORTED_ROWS, grouped_matmul
from jaxsparse.ops.grouped_matmul.core import GroupedParams, matmul
from jaxsparse.ops.grouped_matmul.native import Call, problem_of, shape_of
from jaxsparse.ops.grouped_matmul.run import OFFERED
from jaxsparse.ops.grouped_matmul.watch import RowCount, check_rows
from jaxsparse.select.choice import Choice
from jaxsparse.select.config import override, settings
from jaxsparse.select.explain import record
from jaxsparse.select.grouped_matmul import GATED, ONE_PASS, GatedProblem, gated_against
from jaxsparse.select.select import choose


class _Options(NamedTuple):
    precision: Any
    implementation: Implementation


def grouped_gated(
    lhs: Float[ArrayLike, "m k"],
    gate: Float[ArrayLike, "g k n"],
    up: Float[ArrayLike, "g k n"],
    group_sizes: Int[ArrayLike, "g"],
    *,
    gather: Int[ArrayLike, "m'"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    implementation: Implementation = None,
) -> Float[Array, "m' n"]:
    """`silu(y_gate) * y_up` with `y_w = grouped_matmul(lhs, w, group_sizes, gather=gather)`.

    Args:
        lhs: float32, bfloat16 or float16 [m, k].
        gate, up: same dtype as lhs, [g, k, n].
        group_sizes, gather, precision, implementation: as in `grouped_matmul`.

    Returns:
        lhs's dtype [m', n]. Rows that no group owns are zero. `js.explain` says whether it ran in
        one pass, and why not; under `js.config(variant=)` it is two products of that variant.

    Raises:
        TypeError, ValueError: as `grouped_matmul`.
    """
    options = _Options(precision, implementation_key(implementation))
    operands: tuple[Any, ...] = (lhs, gate, up, group_sizes, gather)
    if not _fit(*operands):
        return _two_products(options, *operands)  # which name the argument
    return _fitting(options, implementation, *operands)


def _fitting(
    options: _Options,
    implementation: Implementation,
    lhs: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
) -> jax.Array:
    """On arrays whose shapes fit each other."""
    operands = (lhs, gate, up, group_sizes, gather)
    implementations = plan("grouped_gated", implementation, OFFERED)
    call = _call(lhs, gate, gather)
    offered = implementations.get("cuda") == "cuda"
    problem = _problem("cuda", *operands, offered=offered)
    one_pass = choose(GATED, problem).first == ONE_PASS

    def told(name: str) -> tuple[Choice | None, dict[str, str]]:
        asked = _problem(name, *operands, offered=offered)
        return choose(GATED, asked), gated_against(asked)

    def counted() -> RowCount:
        return RowCount.of(jnp.asarray(group_sizes), call.sorted_rows, (gather, lhs.shape[0]))

    record(
        GATED,
        f"{lhs.dtype.name}{list(lhs.shape)} * 2 x {list(gate.shape)} -> "
        f"{[call.sorted_rows, call.outputs]}",
        implementations,
        told,
        counted if one_pass else None,
        "rows",
    )
    if not one_pass:
        return _two_products(options, *operands)
    check_rows(lhs.shape[0], call.sorted_rows, group_sizes, gather, None, call.sorted_rows)
    return _gated(options, *lift(*operands))


def _fit(lhs: Any, gate: Any, up: Any, group_sizes: Any, gather: Any) -> bool:
    """Whether the operands are arrays whose shapes fit each other."""
    operands = (lhs, gate, up, group_sizes) + (() if gather is None else (gather,))
    if [getattr(v, "ndim", None) for v in operands] != [2, 3, 3, 1, 1][: len(operands)]:
        return False
    return gate.shape == up.shape and gate.shape[:2] == (group_sizes.shape[0], lhs.shape[1])


def _problem(
    platform: str,
    lhs: Shaped,
    gate: Shaped,
    up: Shaped,
    group_sizes: Shaped,
    gather: Shaped | None,
    *,
    offered: bool,
) -> GatedProblem:
    """What the choice depends on; `offered`: the CUDA kernels are built, and may be taken."""
    indices = [group_sizes] if gather is None else [group_sizes, gather]
    return GatedProblem(
        problem_of(platform, _call(lhs, gate, gather), lhs, group_sizes),
        {gate.dtype, up.dtype} == {lhs.dtype},
        all(v.dtype == np.int32 for v in indices),
        MOST_SORTED_ROWS,
        offered,
        settings().demanded("grouped_matmul") is not None,
    )


def _call(lhs: Shaped, gate: Shaped, gather: Shaped | None) -> Call:
    rows = lhs.shape[0] if gather is None else gather.shape[0]
    return Call(rows, gate.shape[2], rows, False, False, "default", lhs.dtype.name)


def _two_products(
    options: _Options,
    lhs: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
) -> jax.Array:
    """Each product checks its operands, and says what it ran."""
    product = functools.partial(grouped_matmul, gather=gather, **options._asdict())
    return jax.nn.silu(product(lhs, gate, group_sizes)) * product(lhs, up, group_sizes)


def _unwatched(options: _Options, *operands: Any) -> jax.Array:
    """The two products inside the fused call, which was checked and told as one."""
    with override(checked=False, explain=None):
        return _two_products(options, *operands)


@differentiable()
def _gated(options: _Options, *operands: jax.Array | None) -> jax.Array:
    return _run(options)(*operands)


def _product_params(options: _Options, lhs: Shaped, gather: Shaped | None) -> GroupedParams:
    rows = lhs.shape[0] if gather is None else gather.shape[0]
    precision = canonical_precision(options.precision)
    return GroupedParams(rows, False, precision, lhs.dtype.name, options.implementation)


def _gate(y_gate: jax.Array, y_up: jax.Array) -> jax.Array:
    return jax.nn.silu(y_gate) * y_up


def _gated_fwd(
    options: _Options,
    lhs: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
):
    """Two products: the derivative needs the result of each."""
    p = _product_params(options, lhs, gather)
    ys = tuple(matmul(p, lhs, w, group_sizes, gather, None, None) for w in (gate, up))
    return _gate(*ys), (lhs, gate, up, group_sizes, gather, *ys)


def _gated_tangent(options: _Options, saved: Any, tangents: Any) -> jax.Array:
    lhs, gate, up, sizes, gather, *ys = saved
    p = _product_params(options, lhs, gather)
    moved = (tangents[0], tangents[1]), (tangents[0], tangents[2])
    dys = [
        matmul.tangent(p, (lhs, w, sizes, gather, None, None), (dlhs, dw, None, None, None, None))
        if dlhs is not None or dw is not None
        else None
        for w, (dlhs, dw) in zip((gate, up), moved, strict=True)
    ]
    return tangent_of(_gate, ys, dys)


def _gated_bwd(options: _Options, saved: Any, ct: jax.Array):
    lhs, gate, up, sizes, gather, *ys = saved
    p = _product_params(options, lhs, gather)
    cts = zip((gate, up), jax.vjp(_gate, *ys)[1](ct), strict=True)
    found = [matmul.backward(p, (lhs, w, sizes, gather, None, None), g)[:2] for w, g in cts]
    (dlhs, dgate), (more, dup) = found
    return dlhs + more, dgate, dup, None, None


_gated.defrules(_gated_fwd, _gated_tangent, _gated_bwd)


#: A mesh splits the outputs.
_MESH_RULE = Rule(
    GATED,
    ("m k", "g k n", "g k n", "g", "r"),
    ("rows n",),
    ("n",),
    ("lhs", "gate", "up", "group_sizes", "gather"),
    why={
        "m": "the rows of a group lie anywhere among all rows: split n",
        "k": "silu comes after the sum over k: split n",
        "g": "a row needs the weights of its group: split n",
    },
)


def _run(options: _Options) -> Any:
    """A function (lhs, gate, up, group_sizes, gather) -> out with its vmap rule."""

    @custom_vmap
    def run(*args: jax.Array | None) -> jax.Array:
        products = functools.partial(_unwatched, options)
        alone = dispatch(
            "grouped_gated", options.implementation, cuda=_native, cpu=products, reference=products
        )
        return partitioned(_MESH_RULE, alone, lambda _, *args: alone(*args))(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
        return loop_over(_run(options), args, in_batched), True

    return run


def _native(
    lhs: jax.Array, gate: jax.Array, up: jax.Array, group_sizes: jax.Array, gather: jax.Array | None
) -> jax.Array:
    call = _call(lhs, gate, gather)
    dtype = DTYPES[lhs.dtype.name]
    size = native("cuda").grouped_gated_workspace(shape_of(call, lhs, group_sizes), dtype, dtype)
    return ffi_call(
        "jaxsparse_grouped_gated",
        [((call.sorted_rows, call.outputs), lhs.dtype), ((size,), np.uint8)],
        lhs,
        gate,
        up,
        group_sizes,
        absent(gather, np.int32),
        sorted_rows=call.sorted_rows,
    )[0]
