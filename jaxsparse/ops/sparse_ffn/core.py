"""The differentiable core of `sparse_ffn`.

The backward pass keeps the mask of the forward pass: a gradient of an activation exists only where
the activation function is not zero, so four of its five products have an operand with the same
zeros, and take `run.product`. A tangent is that of the plain computation.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.core.differentiable import Tangents, differentiable, product_rule, tangent_of
from jaxsparse.ops.sparse_ffn import run as ffn_run
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.reference.sparse_ffn import steps as reference

Optional = jax.Array | None
#: x, w_up, w_gate, w_down, then h and what it was made of: pre, up, kept.
Saved = tuple[jax.Array, jax.Array, Optional, jax.Array, jax.Array, jax.Array, Optional, Optional]


@differentiable()
def apply(
    p: FfnParams, x: jax.Array, w_up: jax.Array, w_gate: Optional, w_down: jax.Array
) -> jax.Array:
    """[tokens, d] -> [tokens, d_out]."""
    return ffn_run.network(p)(x, w_up, w_gate, w_down)


def _apply_fwd(
    p: FfnParams, x: jax.Array, w_up: jax.Array, w_gate: Optional, w_down: jax.Array
) -> tuple[jax.Array, Saved]:
    """The first products are XLA's: the derivative needs their results."""
    h, pre, up, kept = ffn_run.hidden(p)(x, p.up(w_up), w_gate)
    return times(p, h, w_down), (x, w_up, w_gate, w_down, h, pre, up, kept)


def _apply_tangent(p: FfnParams, saved: Saved, tangents: Tangents) -> Any:
    return tangent_of(functools.partial(ffn_run.reference, p), saved[:4], tangents[:4])


def _apply_bwd(p: FfnParams, saved: Saved, ct: jax.Array):
    x, w_up, w_gate, w_down, h, pre, up, kept = saved
    dw_down = times(p, h.T, ct)
    dh = ffn_run.sampled(p)(ct, w_down, reference.keep(pre, kept))
    parts = (pre,) if up is None else (pre, up)

    def made(pre: jax.Array, up: Optional = None) -> jax.Array:
        return reference.keep(reference.activations(pre, up, p.activation), kept)

    found = jax.vjp(made, *parts)[1](dh)
    weights = (p.up(w_up),) if w_gate is None else (w_gate, p.up(w_up))
    dx = functools.reduce(
        jnp.add, (times(p, dy, w.T) for dy, w in zip(found, weights, strict=True))
    )
    dws = [times(p, dy.T, x).T for dy in found]
    dw_gate = None if w_gate is None else dws[0]
    return dx, p.up(dws[-1]), dw_gate, dw_down


apply.defrules(_apply_fwd, _apply_tangent, _apply_bwd)


@differentiable()
def times(p: FfnParams, a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b, where a has many zeros."""
    return ffn_run.product(p)(a, b)


def _times_fwd(p: FfnParams, a: jax.Array, b: jax.Array):
    return times(p, a, b), (a, b)


def _times_tangent(p: FfnParams, saved: Any, tangents: Tangents) -> Any:
    terms = [ffn_run.dense(p)(*pair) for pair in product_rule(saved, tangents)]
    return functools.reduce(jnp.add, terms) if terms else None


def _times_bwd(p: FfnParams, saved: Any, ct: jax.Array):
    a, b = saved
    return ffn_run.dense(p)(ct, b.T), times(p, a.T, ct)


times.defrules(_times_fwd, _times_tangent, _times_bwd)
