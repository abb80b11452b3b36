"""`masked_matmul` against XLA's dense product, with and without the mask multiplied in, and other
packages' sparse products.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.bench.products.rivals import Bcoo, CupySparse, TorchBlocks, installed
from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    element_type,
    normal,
    platform_name,
    precision,
)
from jaxsparse.ops import masked_matmul
from jaxsparse.testing.product_cases import MatmulCase

OP = "masked_matmul"
SPARSITIES = (0.5, 0.7, 0.9, 0.95, 0.99)
DENSE, MULTIPLIED = "XLA dense", "dense, mask multiplied in"


def comparisons(
    case: MatmulCase, dtype: str, plan: ProductPlan, sparsities: Sequence[float] = SPARSITIES
) -> Iterator[Comparison]:
    """One comparison a sparsity; every call of a chain has a mask of its own, and its index is part
    of the timing.

    Args:
        case: sizes, blocks, what is masked.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        sparsities: shares of the blocks that are unset.

    Raises:
        ValueError: for a dtype that does not exist or a sparsity outside 0 to 1.
    """
    kind, exactness = element_type(dtype), precision(dtype)
    for sparsity in sparsities:
        if not 0 <= sparsity <= 1:
            raise ValueError(f"sparsity={sparsity}; it takes 0 to 1")
        masks = [jnp.asarray(case.mask(sparsity, seed)) for seed in range(plan.calls)]
        operands = {
            "b": normal((case.k, case.n), kind, 1, 1 / math.sqrt(max(case.k, 1))),
            "masks": tuple(masks),
        }

        def draw(seed: int) -> jax.Array:
            return normal((case.m, case.k), kind, 10 + seed)

        def want(x: jax.Array, mask: jax.Array, operands: Any) -> jax.Array:
            a, b = x.astype(jnp.float32), operands["b"].astype(jnp.float32)
            return multiplied(case, a, b, mask, jax.lax.Precision.HIGHEST)

        def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
            return multiplied(case, x, operands["b"], operands["masks"][i], exactness)

        told = 1 - sparsity if plan.told else None

        def ours(i: int, x: jax.Array, operands: Any, told: float | None = told) -> jax.Array:
            mask = {f"{case.masked}_mask": operands["masks"][i]}
            return masked_matmul(
                x,
                operands["b"],
                granularity=case.block,
                precision=exactness,
                density=told,
                **mask,
            )

        yield Comparison(
            OP,
            case.name,
            f"{100 * sparsity:g} % of the blocks unset",
            dtype,
            draw,
            want,
            operands,
            masks,
            {MULTIPLIED: dense, "jaxsparse": ours},
            _rivals(case, dtype, sparsity),
            _dense(case, dtype, plan),
            against=DENSE,
        )


def multiplied(case: MatmulCase, a: Any, b: Any, mask: Any, precision: Any) -> jax.Array:
    """XLA's dense product of masked operands, or its masked result."""
    rows, columns = case.block
    wide = jnp.repeat(jnp.repeat(mask, rows, 0), columns, 1)

    def kept(value: jax.Array) -> jax.Array:
        keep = wide[: value.shape[0], : value.shape[1]]
        return jnp.where(keep, value, jnp.zeros_like(value))

    a, b = kept(a) if case.masked == "a" else a, kept(b) if case.masked == "b" else b
    y = jnp.matmul(a, b, precision=precision)
    return kept(y) if case.masked == "out" else y


def _dense(case: MatmulCase, dtype: str, plan: ProductPlan) -> Comparison:
    """XLA's product of everything: what a user without masks pays."""
    kind = element_type(dtype)

    def want(x: jax.Array, own: None, b: jax.Array) -> jax.Array:
        full = x.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.matmul(*full, precision=jax.lax.Precision.HIGHEST)

    return Comparison(
        OP,
        case.name,
        "",
        dtype,
        lambda seed: normal((case.m, case.k), kind, 10 + seed),
        want,
        normal((case.k, case.n), kind, 1, 1 / math.sqrt(max(case.k, 1))),
        [None] * plan.calls,
        {DENSE: lambda i, x, b: jnp.matmul(x, b, precision=precision(dtype))},
    )


def _rivals(case: MatmulCase, dtype: str, sparsity: float) -> dict[str, Any]:
    """Other packages' sides, where they are installed and take the case: a mask on a alone."""
    if case.masked != "a":
        return {}
    made: dict[str, Any] = {}
    gpu = platform_name() == "cuda"
    whole = case.m % case.block[0] == 0 and case.k % case.block[1] == 0
    if gpu and installed("torch") and whole and min(case.block) >= 16:
        made["torch BSR"] = functools.partial(
            TorchBlocks, "torch BSR", block=case.block, dtype=dtype
        )
    if gpu and installed("cupy") and dtype in ("float32", "highest"):
        made["cuSPARSE CSR"] = functools.partial(CupySparse, "cuSPARSE CSR", block=case.block)
    if sparsity >= 0.9:
        made["BCOO"] = functools.partial(Bcoo, "BCOO", block=case.block, precision=precision(dtype))
    return made
