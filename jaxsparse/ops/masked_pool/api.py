"""`masked_pool`: the public function. XLA's windows, so there is one form for every platform."""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import as_array, check_float, check_like_result, check_rank
from jaxsparse.core.geometry import Geometry, pair, resolve_padding
from jaxsparse.core.masks import check_mask
from jaxsparse.core.types import Padding, Pair, Pooling
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import NAMES, implementation_key, offers, plan
from jaxsparse.ffi.whole import kept_whole
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import fit_index
from jaxsparse.reference import masked_pool as reference
from jaxsparse.select.explain import count_of, record

OFFERED = offers("masked_pool", "reference")  # XLA's operations, on every platform

KINDS: tuple[Pooling, ...] = ("max", "avg")


@takes_variables
def masked_pool(
    x: Float[ArrayLike, "B H W C"],
    mask: Bool[ArrayLike, "B H W"] | TileIndex,
    window_shape: Pair,
    *,
    strides: Pair | None = None,
    padding: Padding = "VALID",
    kind: Pooling = "max",
    base: Float[ArrayLike, "B Ho Wo C"] | None = None,
    implementation: Implementation = None,
) -> Float[Array, "B Ho Wo C"]:
    """Pooling over the active positions of each window, with the arguments of flax's poolings.

    Other positions are never read into a result (they may hold NaN) and do not count in a mean.
    `js.mask.pool(mask, window_shape, strides, padding)` is the mask of the result. Differentiable
    in x and base.

    Args:
        x: float32, bfloat16 or float16 [B, H, W, C].
        mask: bool[B, H, W], or of a batch of 1, of the positions of x; or a `TileIndex` of it.
        window_shape: one or two positive ints.
        strides: one or two positive ints; None is 1.
        padding: "SAME", "SAME_LOWER", "VALID", an int, or ((top, bottom), (left, right)).
            Positions in the padding do not count.
        kind: "max", or "avg": the mean over active positions, summed in float32.
        base: the values of windows without an active position, of the result's shape and x's dtype;
            None means zeros.
        implementation: None, "cuda", "cpu", "reference", or a sequence of them. XLA's own
            operations run in each case.

    Returns:
        [B, Ho, Wo, C] of x's dtype.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    check_rank("x", x, 4, "NHWC [B, H, W, C]")
    x = as_array("x", x)
    check_float("x", x)
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not one of {', '.join(map(repr, KINDS))}")
    window = pair(window_shape, "window_shape")
    steps = pair(1 if strides is None else strides, "strides")
    size = (x.shape[1], x.shape[2])
    pads = resolve_padding(padding, size, window, steps, (1, 1))
    out = Geometry(steps, pads, (1, 1), (1, 1), 1).out_size(size, window)
    shape = (x.shape[0], *out, x.shape[3])
    if base is not None:
        check_rank("base", base, 4)
        base = as_array("base", base)
        check_like_result("base", base, shape, x.dtype)
    if implementation_key(implementation) is not None:
        plan("masked_pool", implementation, NAMES)
    where = _whole("mask", _positions(mask, (x.shape[0], *size)))
    record(
        "masked_pool",
        f"{x.dtype.name}{list(x.shape)} -> {list(shape)}, kind {kind}",
        plan("masked_pool", None, OFFERED),
        None,
        functools.partial(count_of, where),
        "positions",
    )
    arrays = lift(_whole("x", x), where, None if base is None else _whole("base", base))
    return _whole("the result", _run(window, steps, pads, kind, *arrays))


def _whole(name: str, value: jax.Array) -> jax.Array:
    """Images are not split: XLA's gradient of a maximum over split windows is wrong."""
    why = "a window reads pixels around its own, so every shard needs whole images"
    return kept_whole("masked_pool", name, value, (0, 3)[: value.ndim - 2], why)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
    kind: Pooling,
    x: jax.Array,
    mask: jax.Array,
    base: jax.Array | None,
) -> jax.Array:
    return reference.masked_pool(x, mask, base, window, strides, pads, kind)


def _positions(mask: Any, shape: tuple[int, int, int]) -> jax.Array:
    if isinstance(mask, TileIndex):
        return fit_index("mask", mask, shape, "x's positions are").cover()
    takes = "a bool mask or a TileIndex"
    return check_mask("mask", mask, shape, fixed=2, of="x's positions are", takes=takes)
