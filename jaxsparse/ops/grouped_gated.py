"""`grouped_gated`: the first half of a mixture's experts, `silu(x @ gate) * (x @ up)`, in one pass.

Where a kernel takes the shapes, a row is gathered once for both products and neither of them is
written; elsewhere, and in the gradient, it is two grouped products.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from jaxsparse.bits.pack import implementation_key
from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ffi.platform import plan
from jaxsparse.ffi.register import native
from jaxsparse.ops.batching import loop_over
from jaxsparse.ops.grouped_matmul import MOST_SORTED_ROWS, grouped_matmul
from jaxsparse.ops.grouped_matmul_native import DTYPES, Call, shape_of, tile_reason
from jaxsparse.ops.grouped_matmul_run import OFFERED
from jaxsparse.ops.grouped_matmul_watch import RowCount, check_rows
from jaxsparse.select.config import override, settings
from jaxsparse.select.explain import record


class _Options(NamedTuple):
    precision: Any
    implementation: Implementation


def grouped_gated(
    lhs: Float[Array, "m k"],
    gate: Float[Array, "g k n"],
    up: Float[Array, "g k n"],
    group_sizes: Int[Array, "g"],
    *,
    gather: Int[Array, "m'"] | None = None,
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
    operands = (lhs, gate, up, group_sizes, gather)
    if not _fit(*operands):
        return _two_products(options, *operands)  # which name the argument
    implementations = plan("grouped_gated", implementation, OFFERED)
    reason = _reason_against(*operands)
    if reason is None and implementations.get("cuda") != "cuda":
        reason = "the CUDA kernels are not built, or not asked for"
    if reason is None and settings().demanded("grouped_matmul") is not None:
        reason = "js.config asks for a variant of grouped_matmul"
    call = _call(lhs, gate, gather)

    def told(name: str) -> tuple[None, dict[str, str]]:
        why = reason if name == "cuda" else reason or f"{name} multiplies twice"
        return None, {} if why is None else {"one pass": why}

    def counted() -> RowCount:
        return RowCount.of(jnp.asarray(group_sizes), call.sorted_rows, (gather, lhs.shape[0]))

    record(
        "grouped_gated",
        f"{lhs.dtype.name}{list(lhs.shape)} * 2 x {list(gate.shape)} -> "
        f"{[call.sorted_rows, call.outputs]}",
        implementations,
        told,
        counted if reason is None else None,
        "rows",
    )
    if reason is not None:
        return _two_products(options, *operands)
    check_rows(lhs.shape[0], call.sorted_rows, group_sizes, gather, None, call.sorted_rows)
    return _gated(options, *operands)


def _fit(lhs: Any, gate: Any, up: Any, group_sizes: Any, gather: Any) -> bool:
    """Whether the operands are arrays whose shapes fit each other."""
    operands = (lhs, gate, up, group_sizes) + (() if gather is None else (gather,))
    if [getattr(v, "ndim", None) for v in operands] != [2, 3, 3, 1, 1][: len(operands)]:
        return False
    return gate.shape == up.shape and gate.shape[:2] == (group_sizes.shape[0], lhs.shape[1])


def _reason_against(lhs: Any, gate: Any, up: Any, group_sizes: Any, gather: Any) -> str | None:
    """Why the fused kernel does not take these operands, or None."""
    if lhs.dtype not in (jnp.bfloat16, jnp.float16) or {gate.dtype, up.dtype} != {lhs.dtype}:
        return "it takes 16-bit operands"
    if group_sizes.dtype != np.int32 or (gather is not None and gather.dtype != np.int32):
        return "group_sizes and gather are not int32"
    call = _call(lhs, gate, gather)
    if call.sorted_rows > MOST_SORTED_ROWS:
        return "more sorted rows than the kernels count"
    return tile_reason(call, lhs, group_sizes)


def _call(lhs: Any, gate: Any, gather: Any) -> Call:
    rows = lhs.shape[0] if gather is None else gather.shape[0]
    return Call(rows, gate.shape[2], rows, False, False, "default", lhs.dtype.name)


def _two_products(options: _Options, lhs, gate, up, group_sizes, gather) -> jax.Array:
    """Each product checks its operands, and says what it ran."""
    product = functools.partial(grouped_matmul, gather=gather, **options._asdict())
    return jax.nn.silu(product(lhs, gate, group_sizes)) * product(lhs, up, group_sizes)


def _unwatched(options: _Options, *operands: Any) -> jax.Array:
    """The two products inside the fused call, which was checked and told as one."""
    with override(checked=False, explain=None):
        return _two_products(options, *operands)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gated(options: _Options, lhs, gate, up, group_sizes, gather) -> jax.Array:
    return _run(options)(lhs, gate, up, group_sizes, gather)


def _gated_fwd(options: _Options, lhs, gate, up, group_sizes, gather):
    def products(lhs: Any, gate: Any, up: Any) -> jax.Array:
        return _unwatched(options, lhs, gate, up, group_sizes, gather)

    return jax.vjp(products, lhs, gate, up)


def _gated_bwd(options: _Options, vjp: Any, ct: jax.Array):
    return *vjp(ct), None, None


_gated.defvjp(_gated_fwd, _gated_bwd)


def _run(options: _Options) -> Any:
    """A function (lhs, gate, up, group_sizes, gather) -> out with its vmap rule."""

    @custom_vmap
    def run(*args: Any) -> jax.Array:
        products = functools.partial(_unwatched, options)
        return dispatch(
            "grouped_gated", options.implementation, cuda=_native, cpu=products, reference=products
        )(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Any, *args: Any):
        return loop_over(_run(options), args, in_batched), True

    return run


def _native(lhs, gate, up, group_sizes, gather) -> jax.Array:
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
        jnp.zeros(0, jnp.int32) if gather is None else gather,
        sorted_rows=call.sorted_rows,
    )[0]
