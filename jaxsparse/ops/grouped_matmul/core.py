"""The differentiable core of `grouped_matmul`: two maps, each the other's derivative.

`matmul` is linear in lhs, rhs and the row weights. Its gradient for lhs is `matmul` again (rhs
transposed, gather and scatter exchanged), for rhs it is `drhs`; and the gradients of `drhs` are
two `matmul`s. So derivatives of any order run through the same kernels, and no permuted copy of an
operand is written.
"""

import dataclasses
import functools
from typing import cast

import jax
import jax.numpy as jnp

from jaxsparse.core.differentiable import Tangents, differentiable, product_rule
from jaxsparse.core.types import Shaped
from jaxsparse.ops.grouped_matmul import run as grouped_matmul_run
from jaxsparse.ops.grouped_matmul.run import GroupedParams, sorted_rows
from jaxsparse.reference.grouped_matmul import counted_rows, rows_of

__all__ = ["GroupedParams", "drhs", "matmul"]

#: The operands of `matmul` and of `drhs`, kept for the gradient.
Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array | None, jax.Array | None]


@differentiable()
def matmul(
    p: GroupedParams,
    lhs: jax.Array,
    rhs: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    row_weights: jax.Array | None,
) -> jax.Array:
    """out[scatter[i]] += row_weights[i] * lhs[gather[i]] @ rhs[group of i], in
    p.out_dtype[p.num_rows, n].
    """
    return grouped_matmul_run.matmul(p)(lhs, rhs, group_sizes, gather, scatter, row_weights)


def _matmul_fwd(p: GroupedParams, *operands: jax.Array | None):
    return matmul(p, *operands), operands


def _matmul_bwd(p: GroupedParams, saved: Saved, g: jax.Array):
    lhs, rhs, sizes, gather, scatter, weights = saved
    g = g.astype(lhs.dtype)
    dlhs, dweights = _lhs_grad(p, g, lhs, rhs, sizes, gather, scatter, weights)
    like_rhs = dataclasses.replace(p, out_dtype=rhs.dtype.name)
    if p.transpose_rhs:
        dw = drhs(like_rhs, g, lhs, sizes, scatter, gather, weights)
    else:
        dw = drhs(like_rhs, lhs, g, sizes, gather, scatter, weights)
    return dlhs, dw, None, None, None, dweights


def _matmul_tangent(p: GroupedParams, saved: Saved, tangents: Tangents) -> jax.Array:
    """Linear in each of the three."""
    lhs, rhs, sizes, gather, scatter, weights = saved
    dlhs, drhs, _, _, _, dweights = tangents
    changed = product_rule((lhs, rhs, weights), (dlhs, drhs, dweights))
    each = p if len(changed) == 1 else dataclasses.replace(p, out_dtype="float32")
    terms = [matmul(each, a, b, sizes, gather, scatter, w) for a, b, w in changed]
    return functools.reduce(jnp.add, terms).astype(p.out_dtype)


matmul.defrules(_matmul_fwd, _matmul_tangent, _matmul_bwd)


@differentiable()
def drhs(
    p: GroupedParams,
    lhs: jax.Array,
    gy: jax.Array,
    group_sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    row_weights: jax.Array | None,
) -> jax.Array:
    """p.out_dtype[g, k, n]: per group, the sum over its rows of row_weights[i] * lhs[gather[i]].T @
    gy[scatter[i]], rounded once.
    """
    return grouped_matmul_run.drhs(p)(lhs, gy, group_sizes, gather, scatter, row_weights)


def _drhs_fwd(p: GroupedParams, *operands: jax.Array | None):
    return drhs(p, *operands), operands


def _drhs_bwd(p: GroupedParams, saved: Saved, ct: jax.Array):
    lhs, gy, sizes, gather, scatter, weights = saved
    rhs = ct.astype(lhs.dtype)
    linear = dataclasses.replace(p, transpose_rhs=False)
    dlhs, dweights = _lhs_grad(linear, gy, lhs, rhs, sizes, gather, scatter, weights)
    forward = _towards(linear, gy, scatter, lhs, gather)
    dgy = matmul(forward, lhs, rhs, sizes, gather, scatter, weights)
    return dlhs, dgy, None, None, None, dweights


def _drhs_tangent(p: GroupedParams, saved: Saved, tangents: Tangents) -> jax.Array:
    lhs, gy, sizes, gather, scatter, weights = saved
    dlhs, dgy, _, _, _, dweights = tangents
    changed = product_rule((lhs, gy, weights), (dlhs, dgy, dweights))
    each = p if len(changed) == 1 else dataclasses.replace(p, out_dtype="float32")
    terms = [drhs(each, a, b, sizes, gather, scatter, w) for a, b, w in changed]
    return functools.reduce(jnp.add, terms).astype(p.out_dtype)


drhs.defrules(_drhs_fwd, _drhs_tangent, _drhs_bwd)


def _towards(
    p: GroupedParams, to: Shaped, scatter: Shaped | None, source: Shaped, gather: Shaped | None
) -> GroupedParams:
    """The parameters of a product that ends in an array like `to`."""
    rows = sorted_rows(source, gather, scatter) if scatter is None else to.shape[0]
    return dataclasses.replace(p, num_rows=rows, out_dtype=to.dtype.name)


def _lhs_grad(
    p: GroupedParams,
    g: jax.Array,
    lhs: jax.Array,
    rhs: jax.Array,
    sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    weights: jax.Array | None,
) -> tuple[jax.Array, jax.Array | None]:
    """Gradients of lhs and of the row weights of `matmul(p, ...)`, from the cotangent `g` of its
    result.
    """
    back = dataclasses.replace(p, transpose_rhs=not p.transpose_rhs)
    onto_lhs = _towards(back, lhs, gather, g, scatter)
    if weights is None:
        return matmul(onto_lhs, g, rhs, sizes, scatter, gather, None), None
    rows = sorted_rows(lhs, gather, scatter)
    counted = counted_rows(sizes, rows, (gather, lhs.shape[0]), (scatter, g.shape[0]))
    sorted_grad = dataclasses.replace(back, num_rows=rows, out_dtype="float32")
    z = cast(jax.Array, matmul(sorted_grad, g, rhs, sizes, scatter, None, None))
    z = jnp.where(counted[:, None], z, jnp.zeros_like(z))
    dweights = jnp.sum(z * rows_of(lhs, gather, counted).astype(jnp.float32), axis=1)
    if gather is None:
        scaled = z * jnp.where(counted, weights, jnp.zeros_like(weights))[:, None]
        return scaled.astype(lhs.dtype), dweights
    return matmul(onto_lhs, g, rhs, sizes, scatter, gather, weights), dweights
