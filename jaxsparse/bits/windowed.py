"""Masks as values: how a mask goes through a window. On packed words, on the device."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from jaxsparse.bits.pack import pack_mask, unpack_mask
from jaxsparse.bits.window import any_bits, any_rows, every_bit, spread_bits
from jaxsparse.core.checks import axes, check_array
from jaxsparse.core.geometry import Geometry, pair, resolve_padding
from jaxsparse.core.types import Padding, Pair

#: What a window asks of its positions.
Reduce = Literal["any", "all"]


def propagate(
    mask: Bool[ArrayLike, "*batch H W"],
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
) -> Bool[Array, "*batch Ho Wo"]:
    """The output positions whose window holds a position of the mask: what a convolution changes
    when its input changes in the mask, and the mask of its result when the input is zero elsewhere.

    Args:
        mask: bool[*batch, H, W], of the input.
        kernel_size: one or two positive ints.
        strides: one or two positive ints.
        padding: "SAME", "SAME_LOWER", "VALID", an int, or ((top, bottom), (left, right)).
        dilation: of the kernel, one or two positive ints.

    Returns:
        bool[*batch, Ho, Wo].

    Raises:
        TypeError, ValueError: for a mask that is not bool with two axes or more, and for a window
            that does not exist, naming the argument.
    """
    mask = _checked(mask)
    window = _window(kernel_size, strides, padding, dilation, (mask.shape[-2], mask.shape[-1]))
    return _propagate(mask, *window)


def needed(
    mask: Bool[ArrayLike, "*batch Ho Wo"],
    kernel_size: Pair,
    strides: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    *,
    in_shape: tuple[int, int] | None = None,
) -> Bool[Array, "*batch H W"]:
    """The input positions that the outputs in the mask read.

    Args:
        mask: bool[*batch, Ho, Wo], of the output.
        kernel_size: as in `propagate`.
        strides: as in `propagate`.
        padding: as in `propagate`.
        dilation: as in `propagate`.
        in_shape: (H, W) of the input. None: the output's times the strides with "SAME" and
            "SAME_LOWER"; else the smallest that has this output.

    Returns:
        bool[*batch, H, W].

    Raises:
        TypeError, ValueError: as `propagate`; for an `in_shape` that gives another output than the
            mask's.
    """
    mask = _checked(mask)
    out = (mask.shape[-2], mask.shape[-1])
    if in_shape is None:
        size = _smallest(out, kernel_size, strides, padding, dilation)
    else:
        size = pair(in_shape, "in_shape", least=0)
    kernel, geometry, _ = _window(kernel_size, strides, padding, dilation, size)
    if geometry.out_size(size, kernel) != out:
        raise ValueError(
            f"mask has shape {mask.shape}; in_shape={size} gives an output of "
            f"{geometry.out_size(size, kernel)}"
        )
    return _needed(mask, kernel, geometry, size)


def dilate(mask: Bool[ArrayLike, "*batch H W"], radius: Pair) -> Bool[Array, "*batch H W"]:
    """The positions at most `radius` rows and columns away from the mask.

    Args:
        mask: bool[*batch, H, W].
        radius: one or two ints of 0 or more.

    Returns:
        bool[*batch, H, W].

    Raises:
        TypeError, ValueError: for another mask, and a radius below 0, naming the argument.
    """
    rows, columns = pair(radius, "radius", least=0)
    return propagate(mask, (2 * rows + 1, 2 * columns + 1))


def pool(
    mask: Bool[ArrayLike, "*batch H W"],
    window_shape: Pair,
    strides: Pair | None = None,
    padding: Padding = "VALID",
    *,
    reduce: Reduce = "any",
) -> Bool[Array, "*batch Ho Wo"]:
    """The mask of a pooling's result, with the arguments of flax's poolings: the windows that hold
    a position of the mask, or that lie in it.

    Args:
        mask: bool[*batch, H, W].
        window_shape: one or two positive ints.
        strides: one or two positive ints; None is 1.
        padding: as in `propagate`. Positions in the padding do not count.
        reduce: "any" or "all" of a window's positions.

    Returns:
        bool[*batch, Ho, Wo].

    Raises:
        TypeError, ValueError: as `propagate`; for an unknown `reduce`.
    """
    steps = 1 if strides is None else strides
    if reduce not in ("any", "all"):
        raise ValueError(f"reduce={reduce!r} is not one of 'any', 'all'")
    if reduce == "any":
        return propagate(mask, window_shape, steps, padding)
    return ~propagate(~_checked(mask), window_shape, steps, padding)


def downsample(
    mask: Bool[ArrayLike, "*batch H W"], factor: Pair, *, reduce: Reduce = "any"
) -> Bool[Array, "*batch Ho Wo"]:
    """One position for each block of `factor` rows and columns; those at the end may be smaller.

    Args:
        mask: bool[*batch, H, W].
        factor: one or two positive ints.
        reduce: "any" or "all" of a block's positions.

    Returns:
        bool[*batch, ceil(H/factor), ceil(W/factor)].

    Raises:
        TypeError, ValueError: as `pool`.
    """
    mask = _checked(mask)
    rows, columns = pair(factor, "factor")
    padding = (0, -mask.shape[-2] % rows), (0, -mask.shape[-1] % columns)
    return pool(mask, (rows, columns), (rows, columns), padding, reduce=reduce)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _propagate(
    mask: jax.Array, kernel: tuple[int, int], geometry: Geometry, size: tuple[int, int]
) -> jax.Array:
    out = geometry.out_size(size, kernel)
    if 0 in (mask.size, *out):
        return jnp.zeros((*mask.shape[:-2], *out), bool)
    (top, _), (left, _) = geometry.padding
    (down, right), (rows, columns) = geometry.strides, geometry.dilation
    high, wide = (out[0] - 1) * down + 1, (out[1] - 1) * right + 1
    words = any_rows(pack_mask(mask), kernel[0], rows, top, high)[..., ::down, :]
    words = any_bits(words, kernel[1], columns, left, wide)
    return unpack_mask(every_bit(words, right, out[1]), out[1])


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _needed(
    mask: jax.Array, kernel: tuple[int, int], geometry: Geometry, size: tuple[int, int]
) -> jax.Array:
    if 0 in (mask.size, *size):
        return jnp.zeros((*mask.shape[:-2], *size), bool)
    (top, _), (left, _) = geometry.padding
    (down, right), (rows, columns) = geometry.strides, geometry.dilation
    words = pack_mask(mask)
    room = [(0, 0, 0)] * (words.ndim - 2)
    words = jax.lax.pad(words, jnp.uint32(0), [*room, (0, 0, down - 1), (0, 0, 0)])
    words = any_rows(words, kernel[0], rows, (kernel[0] - 1) * rows - top, size[0])
    words = spread_bits(words, right, mask.shape[-1])
    words = any_bits(words, kernel[1], columns, (kernel[1] - 1) * columns - left, size[1])
    return unpack_mask(words, size[1])


def _smallest(
    out: tuple[int, int], kernel_size: Any, strides: Any, padding: Any, dilation: Any
) -> tuple[int, int]:
    """The size of an input that has this output."""
    steps, rates = pair(strides, "strides"), pair(dilation, "dilation")
    if isinstance(padding, str) and padding.upper() in ("SAME", "SAME_LOWER"):
        return out[0] * steps[0], out[1] * steps[1]
    kernel = pair(kernel_size, "kernel_size")
    pads = resolve_padding(padding, (1 << 20, 1 << 20), kernel, steps, rates)
    found = [
        max((n - 1) * s + (k - 1) * d + 1 - low - high, 0) if n else 0
        for n, s, k, d, (low, high) in zip(out, steps, kernel, rates, pads, strict=True)
    ]
    return found[0], found[1]


def _window(
    kernel_size: Any, strides: Any, padding: Any, dilation: Any, size: tuple[int, int]
) -> tuple[tuple[int, int], Geometry, tuple[int, int]]:
    kernel, steps = pair(kernel_size, "kernel_size"), pair(strides, "strides")
    rates = pair(dilation, "dilation")
    pads = resolve_padding(padding, size, kernel, steps, rates)
    return kernel, Geometry(steps, pads, rates, (1, 1), 1), size


def _checked(mask: Any) -> jax.Array:
    check_array("mask", mask)
    if mask.dtype != bool:
        raise TypeError(f"mask has dtype {mask.dtype}; it takes bool: `mask != 0` makes one")
    if len(mask.shape) < 2:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; it needs at least {axes(2)}")
    return jnp.asarray(mask)
