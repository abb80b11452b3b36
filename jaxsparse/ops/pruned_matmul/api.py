"""`pruned_matmul`: the public function. Checks at trace time, then hands arrays to the
differentiable core.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_activation,
    check_float,
    check_offsets,
    check_rank,
    is_traced,
    result_dtype,
)
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Activation
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.ops.pruned_matmul.core import PrunedParams, apply
from jaxsparse.ops.pruned_matmul.run import Frozen, choose, pointwise
from jaxsparse.pruned.plan import Plan
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.select.explain import record
from jaxsparse.select.work import result, work


@takes_variables
def pruned_matmul(
    x: Float[ArrayLike, "*batch k"],
    pruned: PrunedWeight,
    *,
    bias: Float[ArrayLike, "n"] | None = None,
    activation: Activation | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch n"]:
    """`activation(x @ w + bias)` with a frozen, pruned w: work for the kept weights only.

    A weight that is closed over by a jitted function is a constant; one that is passed in is an
    operand, and its values may change from call to call. Differentiable in x, the kept values and
    bias; the gradient for x skips the pruned weights, too.

    Args:
        x: float32, bfloat16 or float16 [*batch, k], the dtype of the weight (`pruned.astype`).
        pruned: from `js.pruned.inspect(w)`, w of shape [k, n].
        bias: [n], added in float32.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), applied before rounding.
        precision: as in jax.lax; "highest" multiplies float32 in float32, the default may take TF32
            on a GPU.
        preferred_element_type: the result's dtype: x's dtype (default) or float32. Sums are float32
            in any case.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
            The executor is chosen by shape, sparsity, batch and device; dense is one of them.
            `js.explain` says which ran; `js.config(variant="strips")` selects one.

    Returns:
        [*batch, n].

    Raises:
        TypeError, ValueError: for a weight of another kind, shape or dtype, or a wrong option,
            naming the argument; ValueError when a named implementation cannot run.
    """
    options = (bias, activation, precision, preferred_element_type, implementation)
    if is_symbolic(x):
        why = "an executor is chosen for one number of rows and inputs"
        part: Any = functools.partial(_piece, pruned, options)
        return in_pieces(part, {"x": x}, 64 if np.ndim(x) == 2 else 1, rest=why)
    params, flat = prepare(x, pruned, *options)
    y = run(params, flat, pruned, bias)
    return y.reshape(*np.shape(x)[:-1], pruned.pattern.n_out)


def _piece(pruned: PrunedWeight, options: tuple[Any, ...], x: jax.Array) -> jax.Array:
    params, flat = prepare(x, pruned, *options)
    return run(params, flat, pruned, options[0]).reshape(*x.shape[:-1], params.pattern.n_out)


def prepare(
    x: Any,
    pruned: PrunedWeight,
    bias: ArrayLike | None = None,
    activation: str | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    implementation: Implementation = None,
) -> tuple[PrunedParams, jax.Array]:
    """The checks of `pruned_matmul`: the call's parameters, and x as a matrix."""
    check_plan(pruned, "matmul")
    if not hasattr(x, "shape"):
        raise TypeError(f"x must be an array [*batch, k], not {type(x).__name__}")
    if len(x.shape) < 1:
        raise ValueError("x has shape (); it needs [*batch, k]")
    x = jnp.asarray(x)
    if x.shape[-1] != pruned.pattern.n_in:
        raise ValueError(
            f"x has shape {x.shape}; a plan of a weight {list(pruned.shape)} needs "
            f"[*batch, {pruned.pattern.n_in}]"
        )
    params = check_common(
        x, pruned, bias, activation, precision, preferred_element_type, implementation
    )
    rows = math.prod(x.shape[:-1])
    check_offsets("x", (rows, x.shape[-1]))
    check_offsets("the result", (rows, pruned.pattern.n_out))
    return params, first_axis_alone("pruned_matmul", "x", x, 1).reshape(rows, x.shape[-1])


def check_plan(pruned: object, kind: str) -> None:
    """`pruned` is a plan of that kind."""
    if not isinstance(pruned, PrunedWeight):
        raise TypeError(
            f"pruned must be a PrunedWeight, not {type(pruned).__name__}: js.pruned.inspect makes "
            "one"
        )
    if pruned.kind != kind:
        made = 'kernel, kind="conv"' if kind == "conv" else "w"
        raise ValueError(
            f"pruned is a plan for kind={pruned.kind!r}; this op takes {kind!r}, which "
            f"js.pruned.inspect({made}) makes"
        )
    if tuple(pruned.values.shape) != (pruned.pattern.entries,):
        raise ValueError(
            f"pruned holds values of shape {tuple(pruned.values.shape)}; its pattern keeps "
            f"{pruned.pattern.entries} weights"
        )


def check_common(
    x: jax.Array,
    pruned: PrunedWeight,
    bias: Any,
    activation: str | None,
    precision: jax.lax.PrecisionLike,
    preferred_element_type: DTypeLike | None,
    implementation: Implementation,
) -> PrunedParams:
    """What both ops check alike; the parameters of a product."""
    check_float("x", x)
    if pruned.values.dtype != x.dtype:
        raise TypeError(
            f"pruned has dtype {pruned.values.dtype}, x has {x.dtype}: they must be equal: "
            "pruned.astype(x.dtype)"
        )
    out_dtype = result_dtype(preferred_element_type, x.dtype)
    check_activation(activation)
    if bias is not None:
        check_rank("bias", bias, 1)
        check_float("bias", as_array("bias", bias))  # as x: jax has float64 as float32
        if bias.shape != (pruned.pattern.n_out,):
            raise ValueError(
                f"bias has shape {tuple(bias.shape)}; the plan has {pruned.pattern.n_out} outputs"
            )
    plan("pruned_matmul", implementation, NAMES)
    return PrunedParams(
        pruned.pattern,
        None,
        False,
        activation,
        canonical_precision(precision),
        out_dtype.name,
        implementation_key(implementation),
        pruned.plan.tuned,
    )


@dataclasses.dataclass(frozen=True)
class KeptCount:
    """What `js.explain` counts of a frozen weight: kept weights of all."""

    n_tiles: int
    count: Any
    overflow: Any


def run(
    params: PrunedParams, x: jax.Array, pruned: PrunedWeight, bias: ArrayLike | None
) -> jax.Array:
    """Note the call for `js.explain`, then run it; values that are a constant of the trace become
    part of its key.
    """
    values: Any = pruned.values
    if is_traced(x) and not is_traced(values):
        params = dataclasses.replace(params, frozen=Frozen(values))
        values = jnp.zeros(0, values.dtype)
    pattern = params.pattern
    counted = KeptCount(pattern.size, jnp.int32(pattern.entries), jnp.zeros((), bool))

    out = result(params.out_shape(x), params.out_dtype)
    kept = result((pattern.entries,), x.dtype)
    positions = math.prod(out.shape) // max(pattern.n_out, 1)

    def describe(name: str) -> tuple[Any, dict[str, str]]:
        if name == "reference" or 0 in params.out_shape(x):
            return None, {}
        runs, flat, _ = pointwise(params, x)
        return choose(runs, name, flat)[:2]

    record(
        params.op,
        f"{x.dtype.name}{list(x.shape)} -> {list(params.out_shape(x))}",
        plan(params.op, params.implementation, NAMES),
        describe,
        counted,
        "weights",
        lambda: work(positions * pattern.entries, x, kept, out),
    )
    if bias is not None:
        bias = jnp.asarray(bias).astype(jnp.float32)
    return _jit_of(pruned.plan, params)(*lift(x, jnp.asarray(values), bias))


#: JAX keeps the static arguments of a jitted function after the function is gone: here they would
#: hold the pattern and the frozen values. So each plan has jitted functions without any, which go
#: with it; what they keep does not refer to the plan.
_JITS: weakref.WeakKeyDictionary[Plan, dict[PrunedParams, Any]] = weakref.WeakKeyDictionary()
_MOST_JITS = 64  # of a plan


def _jit_of(owner: Plan, params: PrunedParams) -> Any:
    mine = _JITS.setdefault(owner, {})
    found = mine.get(params)
    if found is None:

        def pruned_product(x: jax.Array, values: jax.Array, bias: jax.Array | None) -> jax.Array:
            return apply(params, x, values, bias)

        while len(mine) >= _MOST_JITS:
            mine.pop(next(iter(mine), params), None)
        found = mine.setdefault(params, jax.jit(pruned_product))
    return found
