"""The differentiable core of the ops on frozen weights.

`linear` is linear in x and in the values. Its gradient for x is `linear` again, on the plan of the
transposed pattern (a convolution's window flipped, its stride a dilation of the cotangent); for the
values it is a product of x and the cotangent, taken where weights are kept.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.differentiable import Fact, differentiable, product_rule
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import over_explicit
from jaxsparse.ops.pruned_matmul import run as pruned_matmul_run
from jaxsparse.ops.pruned_matmul.run import Frozen, PrunedParams
from jaxsparse.pruned.plan import dense_index
from jaxsparse.reference.masked_conv import masked_conv

__all__ = ["PrunedParams", "apply", "value_gradient"]


@differentiable()
def apply(p: PrunedParams, x: jax.Array, values: jax.Array, bias: jax.Array | None) -> jax.Array:
    """activation(x @ w + bias) or of the convolution, in p.out_dtype.

    `values` is empty where p.frozen holds them.
    """
    return pruned_matmul_run.product(p)(x, values, bias)


def _apply_fwd(p: PrunedParams, x: jax.Array, values: jax.Array, bias: jax.Array | None):
    given = Fact(bias is not None)
    if p.activation in (None, "relu", "relu6"):
        out = apply(p, x, values, bias)
        return out, (x, values, given, None if p.activation is None else out)
    # Pre-activations are kept in float32, so that the result is rounded once, as in the epilogue.
    linear = dataclasses.replace(p, activation=None, out_dtype="float32")
    pre: Any = apply(linear, x, values, bias)
    return ACTIVATIONS[p.activation](pre).astype(p.out_dtype), (x, values, given, pre)


def _apply_bwd(p: PrunedParams, saved: Any, g: jax.Array):
    x, values, given, kept = saved
    g = _activation_gradient(p.activation, kept, g)
    axes = tuple(a for a in range(g.ndim) if a != _channel_axis(p, g.ndim))
    dbias = None if not given.value else g.astype(jnp.float32).sum(axes)
    g = g.astype(x.dtype)
    back, order = transposed(p, x)
    backwards = values if p.frozen is not None else values[order]
    dx = apply(back, g, backwards, None)
    if p.frozen is not None:
        return dx, jnp.zeros_like(values), dbias
    return dx, value_gradient(p, x, g).astype(values.dtype), dbias


def _apply_tangent(p: PrunedParams, saved: Any, tangents: Any) -> Any:
    """A product for each of x and the values that moves, on the same plan."""
    x, values, _, kept = saved
    dx, dvalues, dbias = tangents
    changed = product_rule((x, values), (dx, None if p.frozen is not None else dvalues))
    alone = p.activation is None and len(changed) == 1
    out_dtype = p.out_dtype if alone else "float32"
    linear = dataclasses.replace(p, activation=None, out_dtype=out_dtype)
    terms = [apply(linear, a, b, dbias if i == 0 else None) for i, (a, b) in enumerate(changed)]
    if not terms and dbias is not None:
        shape = p.out_shape(x)
        after = (1,) * (len(shape) - 1 - _channel_axis(p, len(shape)))
        terms = [jnp.broadcast_to(dbias.reshape(-1, *after), shape)]
    if not terms:
        return None
    found = functools.reduce(jnp.add, terms)
    return _activation_gradient(p.activation, kept, found).astype(p.out_dtype)


apply.defrules(_apply_fwd, _apply_tangent, _apply_bwd)


def _channel_axis(p: PrunedParams, rank: int) -> int:
    return 1 if p.channels_first else rank - 1


def transposed(p: PrunedParams, x: Shaped) -> tuple[PrunedParams, np.ndarray]:
    """The parameters of the gradient for x, and the entry that each of its entries is."""
    pattern, order = p.pattern.transposed
    geometry = p.geometry
    if geometry is not None:
        image = x.shape[2:] if p.channels_first else x.shape[1:3]
        window = p.pattern.window or (1, 1)
        geometry = geometry.transposed(image, window, geometry.out_size(image, window))
    frozen = p.frozen
    if frozen is not None:
        frozen = Frozen(np.asarray(frozen.values)[order])
    turned = dataclasses.replace(
        p,
        pattern=pattern,
        geometry=geometry,
        activation=None,
        out_dtype=x.dtype.name,
        tuned=(),
        frozen=frozen,
    )
    return turned, order


def value_gradient(p: PrunedParams, x: jax.Array, g: jax.Array) -> jax.Array:
    """float32[kept]: the gradient of each kept weight, from x and the cotangent of the result."""
    rows = pruned_matmul_run.mesh_rule(p)
    images, names = rows.operands[0], ("x", "the result's cotangent")
    rule = dataclasses.replace(rows, operands=(images, images), results=(".",), names=names)
    alone = functools.partial(_value_gradient, p)
    return over_explicit(rule, alone, lambda _, x, g: alone(x, g))(x, g)


def _value_gradient(p: PrunedParams, x: jax.Array, g: jax.Array) -> jax.Array:
    precision = lax.Precision.HIGHEST if p.precision == "highest" else None
    if p.geometry is None:
        dense = lax.dot_general(
            x, g, (((0,), (0,)), ((), ())), precision, preferred_element_type=jnp.float32
        )
        return dense.reshape(-1)[dense_index(p.pattern, (p.pattern.n_in, p.pattern.n_out))]
    shape, geometry = p.pattern.kernel_shape, p.geometry
    x, g = ((v.transpose(0, 2, 3, 1) if p.channels_first else v) for v in (x, g))
    x, g = x.astype(jnp.float32), g.astype(jnp.float32)
    if 0 in (*x.shape, *g.shape):
        return jnp.zeros(p.pattern.entries, jnp.float32)

    def forward(kernel: jax.Array) -> jax.Array:
        mask = jnp.ones(g.shape[:3], bool)
        out = jnp.dtype(jnp.float32)
        return masked_conv(x, kernel, mask, geometry=geometry, precision=precision, out_dtype=out)

    like = jax.typeof(x).update(shape=shape)
    (dense,) = jax.linear_transpose(forward, like)(g)
    return dense.reshape(-1)[dense_index(p.pattern, shape)]


def _activation_gradient(activation: str | None, kept: jax.Array | None, g: jax.Array) -> jax.Array:
    """`kept` is the result of relu and relu6, of others what went in."""
    if activation is None or kept is None:
        return g
    if activation in ("relu", "relu6"):
        inside = kept > 0
        if activation == "relu6":
            inside &= kept < 6
        return jnp.where(inside, g, jnp.zeros_like(g))
    _, back = jax.vjp(ACTIVATIONS[activation], kept)
    return back(g.astype(kept.dtype))[0]
