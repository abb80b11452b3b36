"""The differentiable core of `masked_conv`: three linear maps, each the others' transpose.

The forward is linear in x and in the kernel, so its gradients are a masked convolution again (of
the masked cotangent with the flipped kernel, at the pixels the mask reaches) and `dkernel`. Both
are ops with rules of their own, so derivatives of any order stay sparse. Under vmap the batch is
folded into the images.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsparse.bits import unpack_mask
from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.batching import entries, fold, loop_over, unfold
from jaxsparse.core.differentiable import Fact, differentiable, product_rule
from jaxsparse.ffi import dispatch
from jaxsparse.index import TileIndex
from jaxsparse.index.reach_index import reach_index
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.ops.masked_conv.dkernel import dkernel as dkernel_on_platform
from jaxsparse.ops.masked_conv.dkernel import explain as explain_dkernel
from jaxsparse.ops.masked_conv.run import (
    ConvParams,
    dkernel_on_reference,
    on_platform,
    on_reference,
)
from jaxsparse.ops.masked_conv.shards import split_conv, split_dkernel

__all__ = ["ConvParams", "conv", "dkernel"]


@differentiable()
def conv(
    p: ConvParams,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    index: TileIndex,
    x_words: jax.Array | None,
    residual: jax.Array | None,
) -> jax.Array:
    """Forward, with an optional mask on the input's pixels."""
    return _forward(p)(x, kernel, bias, base, index, x_words, residual)


def _conv_fwd(
    p: ConvParams,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    index: TileIndex,
    x_words: jax.Array | None,
    residual: jax.Array | None,
):
    given = Fact(tuple(v is not None for v in (bias, base, residual)))
    saved = x, kernel, index, x_words, given
    if p.activation in (None, "relu", "relu6"):
        out = conv(p, x, kernel, bias, base, index, x_words, residual)
        return out, (*saved, None if p.activation is None else out)
    # Pre-activations are kept in float32, so that the result is rounded once, as in the fused
    # epilogue.
    linear = dataclasses.replace(p, activation=None, out_dtype="float32")
    added = None if residual is None else residual.astype(jnp.float32)
    pre: Any = conv(linear, x, kernel, bias, None, index, x_words, added)
    y = ACTIVATIONS[p.activation](pre).astype(p.out_dtype)
    out = jnp.where(index.cover()[..., None], y, jnp.zeros_like(y) if base is None else base)
    return out, (*saved, pre)


def _conv_bwd(p: ConvParams, saved: Any, g: jax.Array):
    x, kernel, index, x_words, given, y = saved
    biased, based, added = given.value
    mask = index.cover()[..., None]
    dbase = None if not based else jnp.where(mask, jnp.zeros_like(g), g)
    g = _activation_grad(p.activation, y, g)
    dbias = dresidual = None
    if biased:
        dbias = jnp.where(mask, g, jnp.zeros_like(g)).astype(jnp.float32).sum((0, 1, 2))
    if added:
        dresidual = jnp.where(mask, g, jnp.zeros_like(g)).astype(p.out_dtype)
    g = g.astype(x.dtype)
    explain_dkernel(p, x, g, kernel.shape, index)
    linear = dataclasses.replace(p, activation=None, out_dtype=x.dtype.name)
    dx = _input_grad(linear, g, kernel, index, x.shape, x_words)
    dk: Any = dkernel(linear, kernel.shape[:2], _masked(x, x_words), g, index)
    return dx, dk.astype(kernel.dtype), dbias, dbase, None, None, dresidual


def _conv_tangent(p: ConvParams, saved: Any, tangents: Any) -> Any:
    """A convolution for each of x and the kernel that moves; the last adds what the others gave."""
    x, kernel, index, x_words, _, y = saved
    dx, dkernel, dbias, dbase, _, _, dresidual = tangents
    changed = product_rule((x, kernel), (dx, dkernel))
    alone = p.activation is None and len(changed) + (dresidual is not None) <= 1
    out_dtype = p.out_dtype if alone else "float32"
    linear = dataclasses.replace(p, activation=None, out_dtype=out_dtype)
    found: Any = None if dresidual is None else dresidual.astype(out_dtype)
    for i, (a, b) in enumerate(changed):
        bias = dbias if i == 0 else None
        found = conv(linear, a, b, bias, None, index, x_words, found)
    if not changed and dbias is not None:
        found = dbias if found is None else found + dbias
    if found is not None:
        found = jnp.broadcast_to(found, (*index.shape, kernel.shape[3]))
        found = _activation_grad(p.activation, y, found).astype(p.out_dtype)
    if changed and dbase is None:
        return found
    nothing = jnp.zeros((), p.out_dtype)
    inside, outside = (nothing if v is None else v for v in (found, dbase))
    return jnp.where(index.cover()[..., None], inside, outside)


conv.defrules(_conv_fwd, _conv_tangent, _conv_bwd)


@differentiable(static=2)
def dkernel(
    p: ConvParams, kernel_hw: tuple[int, int], x: jax.Array, g: jax.Array, index: TileIndex
) -> jax.Array:
    """Gradient of the kernel: float32 [kh, kw, C/g, O], summed over the active pixels."""
    return _dkernels(p, kernel_hw)(x, g, index)


def _dkernel_fwd(
    p: ConvParams, kernel_hw: tuple[int, int], x: jax.Array, g: jax.Array, index: TileIndex
):
    return dkernel(p, kernel_hw, x, g, index), (x, g, index)


def _dkernel_bwd(p: ConvParams, kernel_hw: tuple[int, int], saved: Any, ct: jax.Array):
    x, g, index = saved
    kernel = ct.astype(x.dtype)
    dx = _input_grad(p, g, kernel, index, x.shape, None)
    dg = conv(
        dataclasses.replace(p, out_dtype=g.dtype.name), x, kernel, None, None, index, None, None
    )
    return dx, dg, None


def _dkernel_tangent(p: ConvParams, kernel_hw, saved: Any, tangents: Any) -> Any:
    x, g, index = saved
    changed = product_rule((x, g), tangents[:2])
    return functools.reduce(jnp.add, [dkernel(p, kernel_hw, a, b, index) for a, b in changed])


dkernel.defrules(_dkernel_fwd, _dkernel_tangent, _dkernel_bwd)


def _input_grad(
    p: ConvParams,
    g: jax.Array,
    kernel: jax.Array,
    index: TileIndex,
    x_shape: tuple[int, ...],
    x_words: jax.Array | None,
) -> jax.Array:
    """Convolve the cotangent's active pixels with the flipped kernel, where the mask reaches the
    input.
    """
    geo = p.geometry
    kh, kw, per_group, outputs = kernel.shape
    flipped = kernel[::-1, ::-1].swapaxes(2, 3)
    if geo.groups != 1:
        each = outputs // geo.groups
        grouped = kernel[::-1, ::-1].reshape(kh, kw, per_group, geo.groups, each)
        flipped = grouped.transpose(0, 1, 4, 3, 2).reshape(kh, kw, each, x_shape[3])
    active = cover_words(index)
    window, hw = geo.window((kh, kw)), (x_shape[1], x_shape[2])
    target = reach_index(active, window, index.shape[2], hw, x_words, p.implementation)
    back = dataclasses.replace(
        p, geometry=geo.transposed(x_shape[1:3], (kh, kw), g.shape[1:3]), out_dtype=g.dtype.name
    )
    return conv(back, g, flipped, None, None, target, active, None)


def _activation_grad(activation: str | None, y: jax.Array | None, g: jax.Array) -> jax.Array:
    if activation is None or y is None:
        return g
    if activation == "relu":
        return jnp.where(y > 0, g, jnp.zeros_like(g))
    if activation == "relu6":
        return jnp.where((y > 0) & (y < 6), g, jnp.zeros_like(g))
    _, back = jax.vjp(ACTIVATIONS[activation], y)
    return back(g.astype(y.dtype))[0]


def _masked(x: jax.Array, x_words: jax.Array | None) -> jax.Array:
    if x_words is None:
        return x
    return jnp.where(unpack_mask(x_words, x.shape[2])[..., None], x, jnp.zeros_like(x))


def _on_any(p: ConvParams) -> Callable[..., jax.Array]:
    return dispatch(
        "masked_conv",
        p.implementation,
        cuda=functools.partial(on_platform, p, "cuda"),
        cpu=functools.partial(on_platform, p, "cpu"),
        reference=functools.partial(on_reference, p),
    )


def _forward(p: ConvParams) -> Callable[..., jax.Array]:
    """A function (x, kernel, bias, base, index, x_words, residual) -> out with its vmap rule; the
    selection in force is kept.
    """

    @custom_vmap
    def run(
        x: jax.Array,
        kernel: jax.Array,
        bias: jax.Array | None,
        base: jax.Array | None,
        index: TileIndex,
        x_words: jax.Array | None,
        residual: jax.Array | None,
    ):
        return split_conv(p, _on_any)(x, kernel, bias, base, index, x_words, residual)

    @run.def_vmap
    def rule(
        axis_size: int,
        in_batched: Sequence[Any],
        x: jax.Array,
        kernel: jax.Array,
        bias: jax.Array | None,
        base: jax.Array | None,
        index: TileIndex,
        x_words: jax.Array | None,
        residual: jax.Array | None,
    ):
        args = (x, kernel, bias, base, index, x_words, residual)
        if any(jax.tree.leaves(in_batched[1:3])):
            return loop_over(_forward(p), args, in_batched), True
        xb, _, _, base_b, index_b, words_b, residual_b = in_batched
        each = entries(x, xb)
        x = fold(x, xb, axis_size)
        base = None if base is None else fold(base, base_b, axis_size)
        x_words = None if x_words is None else fold(x_words, words_b, axis_size)
        residual = None if residual is None else fold(residual, residual_b, axis_size)
        index = _fold_index(index, index_b, axis_size)
        out = _forward(p)(x, kernel, bias, base, index, x_words, residual)
        return unfold(out, axis_size, each), True

    return run


def _dkernels(p: ConvParams, kernel_hw: tuple[int, int]) -> Callable[..., jax.Array]:
    """A function (x, g, index) -> float32 kernel gradient, with its vmap rule."""

    @custom_vmap
    def run(x: jax.Array, g: jax.Array, index: TileIndex):
        alone = dispatch(
            "masked_conv_dkernel",
            p.implementation,
            cuda=functools.partial(dkernel_on_platform, p, kernel_hw, "cuda"),
            cpu=functools.partial(dkernel_on_platform, p, kernel_hw, "cpu"),
            reference=functools.partial(dkernel_on_reference, p, kernel_hw),
        )
        return split_dkernel(p, kernel_hw, alone)(x, g, index)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], *args: jax.Array | TileIndex):
        return loop_over(_dkernels(p, kernel_hw), args, in_batched), True

    return run


def _fold_index(index: TileIndex, batched: TileIndex, axis_size: int) -> TileIndex:
    """One index over axis_size*B images from a (possibly) batched one over B; keeps which tiles
    were listed.
    """
    b, h, w = index.shape
    if any(jax.tree.leaves(batched)):
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched)
        words = jax.vmap(cover_words, in_axes=(axes,), axis_size=axis_size)(index)
    else:
        words = jnp.broadcast_to(cover_words(index), (axis_size, *index.words.shape))
    words = words.reshape(axis_size * b, h, words.shape[-1])
    return index_of_words(words, w, index.tile)
