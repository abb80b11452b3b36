"""The differentiable core of `sparse_attention`.

The gradient is a kernel of its own, which skips the same blocks: it is differentiable again.
Tangents (forward mode, and derivatives of the gradient) are those of the reference, over the dense
scores.
"""

import functools
from typing import Any, cast

import jax

from jaxsparse.core.differentiable import Tangents, differentiable, tangent_of
from jaxsparse.ops.sparse_attention import run as attention_run
from jaxsparse.ops.sparse_attention.params import (
    AttentionParams,
    Backward,
    Mask,
    forward_arrays,
)

__all__ = ["AttentionParams", "Mask", "attend"]

Optional = jax.Array | None
Arrays = tuple[jax.Array, ...]
#: q, k, v, mask, slopes, bias, then out and lse.
Attended = tuple[jax.Array, jax.Array, jax.Array, Mask, Optional, Optional, jax.Array, jax.Array]
#: q, k, v, out, lse, gout, glse, mask, slopes, bias.
Graded = tuple[
    jax.Array,
    jax.Array,
    jax.Array,
    jax.Array,
    jax.Array,
    jax.Array,
    Optional,
    Mask,
    Optional,
    Optional,
]


@differentiable()
def attend(
    p: AttentionParams,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: Mask,
    slopes: Optional,
    bias: Optional,
) -> Any:
    """(out[B, T, N, Hv], lse float32[B, N, T])."""
    return attention_run.attend(p)(*forward_arrays(q, k, v, mask, slopes, bias))


def _attend_fwd(p: AttentionParams, *operands: jax.Array | Mask | None):
    out, lse = attend(p, *operands)
    return (out, lse), (*operands, out, lse)


def _attend_tangent(p: AttentionParams, saved: Attended, tangents: Tangents) -> Any:
    def dense(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return attention_run.reference(p, *cast(Arrays, forward_arrays(q, k, v, *saved[3:6])))

    return tangent_of(dense, saved[:3], tangents[:3])


def _attend_bwd(p: AttentionParams, saved: Attended, cotangent: tuple[jax.Array, jax.Array]):
    q, k, v, mask, slopes, bias, out, lse = saved
    gout, glse = cotangent
    return *gradients(p, q, k, v, out, lse, gout, glse, mask, slopes, bias), None, None, None


attend.defrules(_attend_fwd, _attend_tangent, _attend_bwd)


@differentiable()
def gradients(
    p: AttentionParams,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    gout: jax.Array,
    glse: Optional,
    mask: Mask,
    slopes: Optional,
    bias: Optional,
) -> Any:
    """(dq, dk, dv) at the cotangents of out and lse."""
    arrays = Backward(q, k, v, out, lse, gout, glse, *mask, slopes, bias)
    return attention_run.gradients(p)(*arrays)


def _gradients_fwd(p: AttentionParams, *operands: jax.Array | Mask | None):
    return gradients(p, *operands), operands


def _dense_gradients(p: AttentionParams, saved: Graded, *moving: Optional) -> Any:
    mask, slopes, bias = saved[7:]
    arrays = cast(Arrays, (*moving, *mask, slopes, bias))
    return attention_run.reference_gradients(p, *arrays)


def _gradients_tangent(p: AttentionParams, saved: Graded, tangents: Tangents) -> Any:
    run = functools.partial(_dense_gradients, p, saved)
    return tangent_of(run, saved[:7], tangents[:7])


def _gradients_bwd(
    p: AttentionParams, saved: Graded, cotangent: tuple[jax.Array, jax.Array, jax.Array]
):
    _, back = jax.vjp(functools.partial(_dense_gradients, p, saved), *saved[:7])
    return *back(tuple(cotangent)), None, None, None


gradients.defrules(_gradients_fwd, _gradients_tangent, _gradients_bwd)
