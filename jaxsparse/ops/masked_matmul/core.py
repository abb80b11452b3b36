"""The differentiable core of `masked_matmul`: a map that is its own derivative.

The gradient for an operand is a masked product again: of the cotangent, masked as the result was,
with the other operand transposed, sampled at this operand's own mask. So derivatives of any order
skip the same blocks.
"""

import dataclasses
import functools
from typing import Any, cast

import jax
import jax.numpy as jnp

from jaxsparse.core.differentiable import differentiable, product_rule
from jaxsparse.ops.masked_matmul import run as masked_matmul_run
from jaxsparse.ops.masked_matmul.params import MatmulParams

__all__ = ["MatmulParams", "product"]

#: The operands of `product`, kept for the gradient.
Saved = tuple[jax.Array, jax.Array, jax.Array | None, jax.Array | None, jax.Array | None]


@differentiable()
def product(
    p: MatmulParams,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
) -> jax.Array:
    """[L or 1, m, k] times [L or 1, k, n], masks bool[L or 1, blocks, blocks] -> [L, m, n]."""
    return masked_matmul_run.product(p)(a, b, a_mask, b_mask, out_mask)


def _fwd(
    p: MatmulParams,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
):
    return product(p, a, b, a_mask, b_mask, out_mask), (a, b, a_mask, b_mask, out_mask)


def _bwd(p: MatmulParams, saved: Saved, g: jax.Array):
    a, b, a_mask, b_mask, out_mask = saved
    a_block, b_block, out_block = p.blocks
    g = g.astype(a.dtype)
    for_a = dataclasses.replace(
        p,
        blocks=(out_block, b_block[::-1], a_block),
        out_dtype=_sum_dtype(a, g),
        turned=False,
    )
    for_b = dataclasses.replace(
        p,
        blocks=(a_block[::-1], out_block, b_block),
        out_dtype=_sum_dtype(b, g),
        turned=not p.turned,
    )
    da = product(for_a, g, _swap(b), out_mask, _swap(b_mask), a_mask)
    db = product(for_b, _swap(a), g, _swap(a_mask), out_mask, b_mask)
    return _shared(da, a), _shared(db, b), None, None, None


def _tangent(p: MatmulParams, saved: Any, tangents: Any) -> Any:
    changed = product_rule(saved[:2], tangents[:2])
    each = p if len(changed) == 1 else dataclasses.replace(p, out_dtype="float32")
    terms = [product(each, a, b, *saved[2:]) for a, b in changed]
    return functools.reduce(jnp.add, terms).astype(p.out_dtype)


product.defrules(_fwd, _tangent, _bwd)


def _swap(value: jax.Array | None) -> Any:
    return None if value is None else jnp.swapaxes(value, 1, 2)


def _sum_dtype(value: jax.Array, g: jax.Array) -> str:
    """Gradients that are still to be summed over products stay in float32."""
    return "float32" if value.shape[0] != g.shape[0] else value.dtype.name


def _shared(gradient: object, value: jax.Array) -> jax.Array:
    """An operand that all products share gets the sum of their gradients."""
    gradient = cast(jax.Array, gradient)
    if gradient.shape[0] != value.shape[0]:
        gradient = gradient.sum(0, keepdims=True)
    return gradient.astype(value.dtype)
