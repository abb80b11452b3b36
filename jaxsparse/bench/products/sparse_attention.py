"""`sparse_attention` against `jax.nn.dot_product_attention`, with the mask and without."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    check_whats,
    element_type,
    normal,
    platform_name,
    precision,
)
from jaxsparse.index.blocks import BlockMask
from jaxsparse.ops import sparse_attention
from jaxsparse.testing.attention_cases import AttentionCase

OP = "sparse_attention"
SPARSITIES = (0.0, 0.5, 0.75, 0.9)
WHATS = ("forward", "gradient")
DENSE, MASKED = "jax.nn, no mask", "jax.nn, with the mask"
OURS, INCLUDED = "jaxsparse", "jaxsparse, mask made in the call"


def comparisons(
    case: AttentionCase,
    dtype: str,
    plan: ProductPlan,
    sparsities: Sequence[float] = SPARSITIES,
    whats: Sequence[str] = WHATS,
) -> Iterator[Comparison]:
    """One comparison a sparsity and what is computed: the result, or the gradients of q, k and v.
    Every call of a chain has a mask of its own.

    Args:
        case: sizes and blocks.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        sparsities: shares of the blocks that are unset.
        whats: of WHATS.

    Raises:
        ValueError: for a dtype or `what` that does not exist, or a sparsity outside 0 to 1.
    """
    kind = element_type(dtype)
    check_whats(whats, WHATS)
    for what in whats:
        for sparsity in sparsities:
            if not 0 <= sparsity <= 1:
                raise ValueError(f"sparsity={sparsity}; it takes 0 to 1")
            yield _comparison(case, dtype, kind, plan, sparsity, what)


def _comparison(
    case: AttentionCase, dtype: str, kind: Any, plan: ProductPlan, sparsity: float, what: str
) -> Comparison:
    bits = [jnp.asarray(case.bits(sparsity, seed)) for seed in range(plan.calls)]
    sizes = case.block_size, case.tokens, case.keys
    masks = [BlockMask.from_block_bits(one, *sizes) for one in bits]
    exactness, shape = precision(dtype), (case.batch, case.keys, case.kv_heads, case.depth)
    operands = {
        "k": normal(shape, kind, 1),
        "v": normal(shape, kind, 2),
        "bits": tuple(bits),
        "masks": tuple(masks),
        "dense": tuple(mask.to_dense() for mask in masks),
    }

    def draw(seed: int) -> jax.Array:
        return normal((case.batch, case.tokens, case.heads, case.depth), kind, 10 + seed)

    def want(x: jax.Array, bits: jax.Array, operands: Any) -> Any:
        arrays = [v.astype(jnp.float32) for v in (x, operands["k"], operands["v"])]
        mask = BlockMask.from_block_bits(bits, *sizes)
        with jax.default_matmul_precision("highest"):
            return _run(what, lambda q, k, v: _dense(q, k, v, mask.to_dense()), *arrays)

    def dense(i: int, x: jax.Array, operands: Any) -> Any:
        mask = operands["dense"][i]
        run = lambda q, k, v: _dense(q, k, v, mask)  # noqa: E731
        return _run(what, run, x, operands["k"], operands["v"])

    def ours(i: int, x: jax.Array, operands: Any) -> Any:
        mask = operands["masks"][i]
        run = lambda q, k, v: sparse_attention(q, k, v, mask, precision=exactness)  # noqa: E731
        return _run(what, run, x, operands["k"], operands["v"])

    def included(i: int, x: jax.Array, operands: Any) -> Any:
        mask = BlockMask.from_block_bits(operands["bits"][i], *sizes)
        run = lambda q, k, v: sparse_attention(q, k, v, mask, precision=exactness)  # noqa: E731
        return _run(what, run, x, operands["k"], operands["v"])

    return Comparison(
        OP,
        case.name,
        f"{what}, {100 * sparsity:g} % of the blocks unset",
        dtype,
        draw,
        want,
        operands,
        bits,
        {MASKED: dense, OURS: ours, INCLUDED: included},
        beside=_unmasked(case, dtype, plan, what),
        against=MASKED,
    )


def _run(what: str, attend: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
    """The result, or the gradients of its sum of sines, joined in one array."""
    if what == "forward":
        return attend(q, k, v)
    loss = lambda *a: jnp.sin(attend(*a).astype(jnp.float32)).sum()  # noqa: E731
    return jnp.concatenate([g.reshape(-1) for g in jax.grad(loss, (0, 1, 2))(q, k, v)])


def _dense(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None) -> jax.Array:
    """jax.nn's, where a query that attends to nothing gives 0: cuDNN's for 16 bits and depths that
    its gradient takes as well, XLA's for others.
    """
    cudnn = platform_name() == "cuda" and q.dtype != jnp.float32 and q.shape[3] <= 128
    out = jax.nn.dot_product_attention(
        q, k, v, mask=mask, implementation="cudnn" if cudnn else None
    )
    if mask is None:
        return out
    some = mask.any(-1).swapaxes(1, 2)[..., None]
    return jnp.where(some, out, jnp.zeros_like(out))


def _unmasked(case: AttentionCase, dtype: str, plan: ProductPlan, what: str) -> Comparison:
    """The attention of everything to everything: what a user without a mask pays."""
    kind, shape = element_type(dtype), (case.batch, case.keys, case.kv_heads, case.depth)

    def run(x: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return _run(what, lambda q, k, v: _dense(q, k, v, None), x, k, v)

    def want(x: jax.Array, own: None, operands: Any) -> Any:
        arrays = [v.astype(jnp.float32) for v in (x, *operands)]
        with jax.default_matmul_precision("highest"):
            return run(*arrays)

    return Comparison(
        OP,
        case.name,
        "",
        dtype,
        lambda seed: normal((case.batch, case.tokens, case.heads, case.depth), kind, 10 + seed),
        want,
        (normal(shape, kind, 1), normal(shape, kind, 2)),
        [None] * plan.calls,
        {DENSE: lambda i, x, operands: run(x, *operands)},
    )
