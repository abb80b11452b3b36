"""How a mask spreads through a convolution: back to what it reads, on to what it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from jaxsparse.core.types import Padding, Pair


def reach(
    mask: Bool[ArrayLike, "B Ho Wo"],
    kernel_size: Pair,
    strides: Pair,
    padding: Padding,
    dilation: Pair,
    in_shape: Sequence[int],
) -> Bool[Array, "B H W"]:
    """The input pixels that some active output pixel reads.

    Args:
        mask: bool[B, Ho, Wo], of the output.
        kernel_size: an int or a pair.
        strides: an int or a pair.
        padding: "SAME", "SAME_LOWER", "VALID", an int, or ((top, bottom), (left, right)).
        dilation: an int or a pair.
        in_shape: (H, W) of the input.

    Returns:
        bool[B, H, W].

    Raises:
        TypeError, ValueError: for a mask that is not bool[B, Ho, Wo], and for padding that does not
            exist.
    """
    mask = _checked(mask)
    kernel, stride, dilate = _pair(kernel_size), _pair(strides), _pair(dilation)
    pads = _pads(padding, in_shape, kernel, stride, dilate)
    if 0 in mask.shape or 0 in tuple(in_shape) or 0 in kernel:
        return jnp.zeros((mask.shape[0], *in_shape), bool)
    config = [(0, 0, 0)]
    for n, size, k, s, d, (low, _) in zip(
        in_shape, mask.shape[1:], kernel, stride, dilate, pads, strict=True
    ):
        before = (k - 1) * d - low
        config.append((before, n - ((size - 1) * s + 1) + low, s - 1))
    return _any_in_window(lax.pad(mask, np.False_, config), kernel, (1, 1), dilate)


def affected(
    mask: Bool[ArrayLike, "B H W"],
    kernel_size: Pair,
    strides: Pair,
    padding: Padding,
    dilation: Pair,
) -> Bool[Array, "B Ho Wo"]:
    """The output pixels that read some active input pixel: what an edit of the input changes.

    Args:
        mask: bool[B, H, W], of the input.
        kernel_size: as in `reach`.
        strides: as in `reach`.
        padding: as in `reach`.
        dilation: as in `reach`.

    Returns:
        bool[B, Ho, Wo].

    Raises:
        TypeError, ValueError: for a mask that is not bool[B, H, W], and for padding that does not
            exist.
    """
    mask = _checked(mask)
    kernel, stride, dilate = _pair(kernel_size), _pair(strides), _pair(dilation)
    pads = _pads(padding, mask.shape[1:], kernel, stride, dilate)
    padded = [max(n + low + high, 0) for n, (low, high) in zip(mask.shape[1:], pads, strict=True)]
    spans = [(k - 1) * d + 1 if k else 0 for k, d in zip(kernel, dilate, strict=True)]
    out = [max((n - span) // s + 1, 0) for n, span, s in zip(padded, spans, stride, strict=True)]
    if 0 in (*mask.shape, *out, *kernel):
        return jnp.zeros((mask.shape[0], *out), bool)
    mask = lax.pad(mask, np.False_, [(0, 0, 0), *((low, high, 0) for low, high in pads)])
    return _any_in_window(mask, kernel, stride, dilate)


def _any_in_window(
    mask: jax.Array, kernel: tuple[int, int], stride: tuple[int, int], dilate: tuple[int, int]
) -> jax.Array:
    """OR over a window: along rows, then along columns."""
    for axis in (0, 1):
        window, strides, dilation = [1, 1, 1], [1, 1, 1], [1, 1, 1]
        window[axis + 1], strides[axis + 1], dilation[axis + 1] = (
            kernel[axis],
            stride[axis],
            dilate[axis],
        )
        mask = lax.reduce_window(
            mask, np.False_, lax.bitwise_or, window, strides, "VALID", window_dilation=dilation
        )
    return mask


def _checked(mask: Any) -> jax.Array:
    if getattr(mask, "dtype", None) != np.bool_ or len(mask.shape) != 3:
        raise TypeError("mask must be a bool array [B, H, W]")
    return jnp.asarray(mask)


def _pair(value: Any) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, (int, np.integer)) else value
    return int(first), int(second)


def _pads(
    padding: Any,
    in_shape: Sequence[int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilate: tuple[int, int],
) -> tuple[tuple[int, int], ...]:
    """(low, high) for each spatial axis."""
    if isinstance(padding, str):
        spans = [(k - 1) * d + 1 if k else 0 for k, d in zip(kernel, dilate, strict=True)]
        return tuple(lax.padtype_to_pads(tuple(in_shape), spans, stride, padding))
    if isinstance(padding, (int, np.integer)):
        return ((int(padding), int(padding)),) * 2
    (top, bottom), (left, right) = padding
    return (top, bottom), (left, right)
