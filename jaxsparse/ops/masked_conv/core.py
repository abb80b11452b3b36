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
from jaxsparse.ops.masked_conv import channels as some
from jaxsparse.ops.masked_conv.dkernel import dkernel as dkernel_on_platform
from jaxsparse.ops.masked_conv.dkernel import explain as explain_dkernel
from jaxsparse.ops.masked_conv.operands import Channels, Operands
from jaxsparse.ops.masked_conv.run import ConvParams, dkernel_on_reference
from jaxsparse.ops.masked_conv.shards import split_conv, split_dkernel

__all__ = ["ConvParams", "conv", "dkernel"]


@differentiable()
def conv(p: ConvParams, operands: Operands) -> jax.Array:
    """Forward, with an optional mask on the input's pixels, and masks of channels."""
    return _forward(p)(operands)


def _conv_fwd(p: ConvParams, operands: Operands):
    x, kernel, index, bias, base, residual, x_words, channels = operands
    given = Fact(tuple(v is not None for v in (bias, base, residual)))
    saved = x, kernel, index, x_words, channels, given
    if p.activation in (None, "relu", "relu6"):
        out = conv(p, operands)
        return out, (*saved, None if p.activation is None else out)
    # Pre-activations are kept in float32, so that the result is rounded once, as in the fused
    # epilogue.
    linear = dataclasses.replace(p, activation=None, out_dtype="float32")
    added = None if residual is None else residual.astype(jnp.float32)
    pre: Any = conv(linear, operands._replace(base=None, residual=added))
    y = ACTIVATIONS[p.activation](pre).astype(p.out_dtype)
    computed = channels.computed(index.cover())
    out = jnp.where(computed, y, jnp.zeros_like(y) if base is None else base)
    return out, (*saved, pre)


def _conv_bwd(p: ConvParams, saved: Any, g: jax.Array):
    x, kernel, index, x_words, channels, given, y = saved
    biased, based, added = given.value
    mask = channels.computed(index.cover())
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
    dx = _input_grad(linear, g, kernel, index, x.shape, x_words, channels)
    dk: Any = dkernel(linear, kernel.shape[:2], _masked(x, x_words), g, index, channels)
    cotangents: Any = dx, dk.astype(kernel.dtype), None, dbias, dbase, dresidual, None, None
    return (Operands(*cotangents),)


def _conv_tangent(p: ConvParams, saved: Any, tangents: Any) -> Any:
    """A convolution for each of x and the kernel that moves; the last adds what the others gave."""
    x, kernel, index, x_words, channels, _, y = saved
    (of,) = tangents
    changed = product_rule((x, kernel), (of.x, of.kernel))
    alone = p.activation is None and len(changed) + (of.residual is not None) <= 1
    out_dtype = p.out_dtype if alone else "float32"
    linear = dataclasses.replace(p, activation=None, out_dtype=out_dtype)
    found: Any = None if of.residual is None else of.residual.astype(out_dtype)
    for i, (a, b) in enumerate(changed):
        bias = of.bias if i == 0 else None
        call = Operands(a, b, index, bias, residual=found, x_words=x_words, channels=channels)
        found = conv(linear, call)
    if not changed and of.bias is not None:
        found = of.bias if found is None else found + of.bias
    if found is not None:
        found = jnp.broadcast_to(found, (*index.shape, kernel.shape[3]))
        found = _activation_grad(p.activation, y, found).astype(p.out_dtype)
    if changed and of.base is None:
        return found
    nothing = jnp.zeros((), p.out_dtype)
    inside, outside = (nothing if v is None else v for v in (found, of.base))
    return jnp.where(channels.computed(index.cover()), inside, outside)


conv.defrules(_conv_fwd, _conv_tangent, _conv_bwd)


@differentiable(static=2)
def dkernel(
    p: ConvParams,
    kernel_hw: tuple[int, int],
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    channels: Channels,
) -> jax.Array:
    """Gradient of the kernel: float32 [kh, kw, C/g, O], summed over the active pixels."""
    return _dkernels(p, kernel_hw)(x, g, index, channels)


def _dkernel_fwd(
    p: ConvParams,
    kernel_hw: tuple[int, int],
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    channels: Channels,
):
    return dkernel(p, kernel_hw, x, g, index, channels), (x, g, index, channels)


def _dkernel_bwd(p: ConvParams, kernel_hw: tuple[int, int], saved: Any, ct: jax.Array):
    x, g, index, channels = saved
    kernel = ct.astype(x.dtype)
    dx = _input_grad(p, g, kernel, index, x.shape, None, channels)
    linear = dataclasses.replace(p, out_dtype=g.dtype.name)
    dg = conv(linear, Operands(x, kernel, index, channels=channels))
    return dx, dg, None, None


def _dkernel_tangent(p: ConvParams, kernel_hw, saved: Any, tangents: Any) -> Any:
    x, g, index, channels = saved
    changed = product_rule((x, g), tangents[:2])
    found = [dkernel(p, kernel_hw, a, b, index, channels) for a, b in changed]
    return functools.reduce(jnp.add, found)


dkernel.defrules(_dkernel_fwd, _dkernel_tangent, _dkernel_bwd)


def _input_grad(
    p: ConvParams,
    g: jax.Array,
    kernel: jax.Array,
    index: TileIndex,
    x_shape: tuple[int, ...],
    x_words: jax.Array | None,
    channels: Channels,
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
    call = Operands(g, flipped, target, x_words=active, channels=channels.turned())
    return conv(back, call)


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


def _forward(p: ConvParams) -> Callable[[Operands], jax.Array]:
    """A function of the operands with its vmap rule; the selection in force is kept."""

    @custom_vmap
    def run(operands: Operands):
        return split_conv(p, operands)()

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], operands: Operands):
        (batched,) = in_batched
        if any(jax.tree.leaves((batched.kernel, batched.bias, batched.channels))):
            return loop_over(_forward(p), (operands,), in_batched), True

        def folded(name: str) -> Any:
            value = getattr(operands, name)
            return None if value is None else fold(value, getattr(batched, name), axis_size)

        whole = {name: folded(name) for name in ("x", "base", "residual", "x_words")}
        index = _fold_index(operands.tiles, batched.tiles, axis_size)
        out = _forward(p)(operands._replace(tiles=index, **whole))
        return unfold(out, axis_size, entries(operands.x, batched.x)), True

    return run


def _dkernels(p: ConvParams, kernel_hw: tuple[int, int]) -> Callable[..., jax.Array]:
    """A function (x, g, index, channels) -> float32 kernel gradient, with its vmap rule."""

    @custom_vmap
    def run(x: jax.Array, g: jax.Array, index: TileIndex, channels: Channels):
        def at(name: str) -> Callable[..., jax.Array]:
            return functools.partial(
                some.kernel_gradient, functools.partial(dkernel_on_platform, p, kernel_hw, name)
            )

        cuda, cpu = at("cuda"), at("cpu")
        every = functools.partial(dkernel_on_reference, p, kernel_hw)
        reference = functools.partial(some.kernel_gradient_of_all, every)
        by = {"cuda": cuda, "cpu": cpu, "reference": reference}
        alone = dispatch("masked_conv_dkernel", p.implementation, **by)
        return split_dkernel(p, kernel_hw, alone, x, g, index, channels)()

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any):
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
