"""`grouped_matmul` against `jax.lax.ragged_dot` and torch's grouped product: forward, both
gradients, and with gather, row weights and combine in one call.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.products.rivals import TorchGrouped, installed
from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    check_whats,
    element_type,
    normal,
    precision,
)
from jaxsparse.ops import Routing, grouped_matmul, route
from jaxsparse.testing.product_cases import GroupedCase

OP = "grouped_matmul"
WHATS = ("forward", "fused", "dlhs", "drhs")
RAGGED, DENSE = "ragged_dot", "dense, same FLOPs"
Product = Callable[..., jax.Array]


def comparisons(
    case: GroupedCase, dtype: str, plan: ProductPlan, whats: Sequence[str] = WHATS
) -> Iterator[Comparison]:
    """Those of one case; every call of a chain has a routing of its own.

    Args:
        case: tokens, experts, sizes.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        whats: of WHATS; "fused" is the product with gather, row weights and combine.

    Raises:
        ValueError: for a dtype or what that does not exist.
    """
    kind = element_type(dtype)
    check_whats(whats, WHATS)
    router = jax.jit(functools.partial(route, num_experts=case.experts))
    own = [router(jnp.asarray(case.expert_ids(seed))) for seed in range(plan.calls)]
    operands = make_operands(case, kind) | {"routing": tuple(own)}
    options = {"precision": precision(dtype)}
    products: dict[str, Product] = {
        RAGGED: functools.partial(ragged, **options),
        "jaxsparse": functools.partial(grouped_matmul, **options),
    }
    exact = functools.partial(ragged, precision=jax.lax.Precision.HIGHEST)

    for what in whats:
        width = case.outputs if what in ("dlhs", "drhs") else case.depth
        rows = case.tokens * (1 if what == "fused" else case.top_k)

        def draw(seed: int, shape: tuple[int, int] = (rows, width)) -> jax.Array:
            return normal(shape, kind, 10 + seed)

        def want(x: jax.Array, routing: Routing, operands: Any, what: str = what) -> jax.Array:
            full = {k: operands[k].astype(jnp.float32) for k in ("lhs", "rhs", "weights")}
            return apply(what, exact, x.astype(jnp.float32), routing, full)

        ways = {name: functools.partial(_call, what, f) for name, f in products.items()}
        rivals = {}
        if what == "forward" and dtype == "bfloat16" and installed("torch"):
            rivals["torch grouped"] = functools.partial(TorchGrouped, "torch grouped", dtype=dtype)
        beside = _dense(case, dtype, plan) if what == "forward" else None
        yield Comparison(
            OP, case.name, what, dtype, draw, want, operands, own, ways, rivals, beside
        )


def make_operands(case: GroupedCase, kind: np.dtype) -> dict[str, jax.Array]:
    """lhs (for drhs), rhs and row weights."""
    rows = case.tokens * case.top_k
    shape = (case.experts, case.depth, case.outputs)
    return {
        "lhs": normal((rows, case.depth), kind, 1),
        "rhs": normal(shape, kind, 2, 1 / math.sqrt(max(case.depth, 1))),
        "weights": jnp.asarray(np.random.default_rng(3).random(rows, np.float32)),
    }


def ragged(
    lhs: jax.Array,
    rhs: jax.Array,
    sizes: jax.Array,
    *,
    precision: Any,
    gather: jax.Array | None = None,
    scatter: jax.Array | None = None,
    row_weights: jax.Array | None = None,
    num_rows: int = 0,
) -> jax.Array:
    """XLA's product, and its three steps where rows are gathered and combined."""
    lhs = lhs if gather is None else lhs[gather]
    y = jax.lax.ragged_dot(lhs, rhs, sizes, precision=precision)
    if scatter is None or row_weights is None:
        return y
    y = y.astype(jnp.float32) * row_weights[:, None]
    return jnp.zeros((num_rows, y.shape[1]), y.dtype).at[scatter].add(y).astype(rhs.dtype)


def apply(what: str, product: Product, x: jax.Array, routing: Routing, operands: Any) -> jax.Array:
    """One call: x is lhs, or the cotangent of a gradient."""
    rhs, sizes = operands["rhs"], routing.group_sizes
    if what == "fused":
        return product(
            x,
            rhs,
            sizes,
            gather=routing.gather,
            scatter=routing.scatter,
            row_weights=operands["weights"],
            num_rows=x.shape[0],
        )
    if what == "forward":
        return product(x, rhs, sizes)
    if what == "dlhs":
        return jax.vjp(lambda lhs: product(lhs, rhs, sizes), operands["lhs"])[1](x)[0]
    return jax.vjp(lambda rhs: product(operands["lhs"], rhs, sizes), rhs)[1](x)[0]


def _call(what: str, product: Product, i: int, x: jax.Array, operands: Any) -> jax.Array:
    return apply(what, product, x, operands["routing"][i], operands)


def _dense(case: GroupedCase, dtype: str, plan: ProductPlan) -> Comparison:
    """XLA's dense product of as many FLOPs."""
    kind = element_type(dtype)
    rows = case.tokens * case.top_k
    operands = normal((case.depth, case.outputs), kind, 2, 1 / math.sqrt(max(case.depth, 1)))

    def want(x: jax.Array, own: None, w: jax.Array) -> jax.Array:
        full = x.astype(jnp.float32), w.astype(jnp.float32)
        return jnp.matmul(*full, precision=jax.lax.Precision.HIGHEST)

    return Comparison(
        OP,
        case.name,
        "forward",
        dtype,
        lambda seed: normal((rows, case.depth), kind, 10 + seed),
        want,
        operands,
        [None] * plan.calls,
        {DENSE: lambda i, x, w: jnp.matmul(x, w, precision=precision(dtype))},
    )
