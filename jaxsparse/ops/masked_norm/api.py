"""`masked_norm`: the public function. XLA fuses its sums: there is one form for every platform."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Float32

from jaxsparse.core.checks import (
    as_array,
    check_array,
    check_bool,
    check_float,
    check_like_result,
    check_positive,
)
from jaxsparse.core.debugging import uninspected
from jaxsparse.core.masks import check_mask
from jaxsparse.core.types import Norm
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import NAMES, implementation_key, offers, plan
from jaxsparse.ffi.whole import kept_whole
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import fit_index
from jaxsparse.reference import masked_norm as reference
from jaxsparse.select.explain import count_of, record

OFFERED = offers("masked_norm", "reference")  # XLA's operations, on every platform

KINDS: tuple[Norm, ...] = ("batch", "group", "layer")
_TAKES = "a bool mask or a TileIndex"


@overload
def masked_norm(
    x: Float[ArrayLike, "*batch C"],
    mask: Bool[ArrayLike, "*batch"] | TileIndex,
    *,
    kind: Norm = "batch",
    groups: int | None = None,
    scale: Float[ArrayLike, "C"] | None = None,
    bias: Float[ArrayLike, "C"] | None = None,
    mean: Float[ArrayLike, "..."] | None = None,
    var: Float[ArrayLike, "..."] | None = None,
    epsilon: float = 1e-5,
    base: Float[ArrayLike, "*batch C"] | None = None,
    return_statistics: Literal[False] = False,
    implementation: Implementation = None,
) -> Float[Array, "*batch C"]: ...


@overload
def masked_norm(
    x: Float[ArrayLike, "*batch C"],
    mask: Bool[ArrayLike, "*batch"] | TileIndex,
    *,
    kind: Norm = "batch",
    groups: int | None = None,
    scale: Float[ArrayLike, "C"] | None = None,
    bias: Float[ArrayLike, "C"] | None = None,
    mean: Float[ArrayLike, "..."] | None = None,
    var: Float[ArrayLike, "..."] | None = None,
    epsilon: float = 1e-5,
    base: Float[ArrayLike, "*batch C"] | None = None,
    return_statistics: Literal[True],
    implementation: Implementation = None,
) -> tuple[Float[Array, "*batch C"], Float32[Array, "..."], Float32[Array, "..."]]: ...


@takes_variables
def masked_norm(
    x: Float[ArrayLike, "*batch C"],
    mask: Bool[ArrayLike, "*batch"] | TileIndex,
    *,
    kind: Norm = "batch",
    groups: int | None = None,
    scale: Float[ArrayLike, "C"] | None = None,
    bias: Float[ArrayLike, "C"] | None = None,
    mean: Float[ArrayLike, "..."] | None = None,
    var: Float[ArrayLike, "..."] | None = None,
    epsilon: float = 1e-5,
    base: Float[ArrayLike, "*batch C"] | None = None,
    return_statistics: bool = False,
    implementation: Implementation = None,
) -> (
    Float[Array, "*batch C"]
    | tuple[Float[Array, "*batch C"], Float32[Array, "..."], Float32[Array, "..."]]
):
    """Normalisation at active positions, by the statistics of active positions:
    `where(mask, (x - mean) / sqrt(var + epsilon) * scale + bias, base)`.

    Other positions do not count in a statistic and are never read into one (they may hold NaN).
    Statistics and sums are float32, the variance from differences to the mean. Differentiable in
    x, scale, bias, mean, var and base.

    Args:
        x: float32, bfloat16 or float16 [*batch, C], one batch axis or more.
        mask: bool[*batch], leading axes of length 1 broadcast; or a `TileIndex` of it.
        kind: what shares a mean and a variance: "batch", all active positions of a channel;
            "group", the active positions of a sample (the first axis) and the channels of a group;
            "layer", the channels of a position.
        groups: of the channels, with kind="group".
        scale: [C]; None means 1.
        bias: [C]; None means 0.
        mean: given statistics, with `var`, in place of those of x: [C] of "batch", [B, groups] of
            "group", [*batch] of "layer".
        var: as `mean`.
        epsilon: added to the variance, a positive number.
        base: the values of the other positions, of x's shape and dtype; None means zeros.
        return_statistics: return mean and var, too.
        implementation: None, "cuda", "cpu", "reference", or a sequence of them. XLA's own
            operations run in each case.

    Returns:
        [*batch, C] of x's dtype; with `return_statistics` a triple: that, and mean and var,
        float32. Statistics without an active position are 0.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    check_array("x", x, least=2)
    x = as_array("x", x)
    check_float("x", x)
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not one of {', '.join(map(repr, KINDS))}")
    channels, batch = x.shape[-1], x.shape[:-1]
    parts = _groups(kind, groups, channels)
    flat = (batch[0], math.prod(batch[1:]), channels)
    shape = {"batch": (channels,), "group": (batch[0], parts), "layer": batch}[kind]
    given = [_statistic(name, v, shape) for name, v in (("mean", mean), ("var", var))]
    if (mean is None) != (var is None):
        missing = "mean" if mean is None else "var"
        raise ValueError(f"{missing} is None: mean and var are given together, or neither")
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not epsilon > 0:
        raise ValueError(f"epsilon={epsilon!r}; it takes a number > 0")
    vectors = [_vector(name, v, channels) for name, v in (("scale", scale), ("bias", bias))]
    if base is not None:
        check_array("base", base)
        base = as_array("base", base)
        check_like_result("base", base, x.shape, x.dtype)
        base = _joined("base", base, 1).reshape(flat)
    every = check_bool("return_statistics", return_statistics)
    if implementation_key(implementation) is not None:
        plan("masked_norm", implementation, NAMES)
    shapes = f"{x.dtype.name}{list(x.shape)}, kind {kind}"
    active = _joined("mask", positions("mask", mask, batch), 0).reshape(flat[:2])
    if kind == "layer":
        both = zip(("mean", "var"), given, strict=True)
        given = [None if v is None else _joined(n, v, 0).reshape(flat[:2]) for n, v in both]
    arrays = lift(uninspected(_joined("x", x, 1).reshape)(flat), active, *given, *vectors, base)
    counted = functools.partial(count_of, active)
    record("masked_norm", shapes, plan("masked_norm", None, OFFERED), None, counted, "positions")
    y, *found = _run(kind, parts, float(epsilon), *arrays)
    y = y.reshape(x.shape)
    return (y, found[0].reshape(shape), found[1].reshape(shape)) if every else y


def _joined(name: str, value: jax.Array, trailing: int) -> jax.Array:
    """An array whose axes behind the first are joined, of which a mesh splits the first."""
    behind = value.ndim - trailing
    why = f"the axes behind the first are joined: of {name}'s axes a mesh splits the first two"
    splits = (*range(min(behind, 2)), *range(behind, value.ndim))
    return kept_whole("masked_norm", name, value, splits, why)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(
    kind: Norm,
    groups: int,
    epsilon: float,
    x: jax.Array,
    mask: jax.Array,
    mean: jax.Array | None,
    var: jax.Array | None,
    scale: jax.Array | None,
    bias: jax.Array | None,
    base: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    if mean is None or var is None:
        mean, var = reference.statistics(x, mask, kind, groups)
    y = reference.normalize(x, mask, mean, var, scale, bias, base, kind, epsilon)
    return y, mean, var


def positions(name: str, mask: Any, batch: tuple[int, ...]) -> Bool[Array, "*batch"]:
    """A mask or an index of positions as bool[*batch].

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not isinstance(mask, TileIndex):
        return check_mask(name, mask, batch, fixed=1, of="x's positions are", takes=_TAKES)
    rows = (math.prod(batch[:-1]), 1, batch[-1])
    shape = (batch[0], batch[1], batch[2]) if len(batch) == 3 and mask.shape[1] != 1 else rows
    return fit_index(name, mask, shape, f"x's positions {batch} need one of").cover().reshape(batch)


def _groups(kind: Norm, groups: Any, channels: int) -> int:
    """How many parts of the channels have statistics of their own."""
    if kind != "group":
        if groups is not None:
            raise ValueError(f"groups={groups!r} is for kind='group'")
        return 1
    if groups is None:
        raise ValueError("groups is None; kind='group' takes how many groups there are")
    count = check_positive("groups", groups)
    if channels % count:
        raise ValueError(f"groups={count} does not divide x's {channels} channels")
    return count


def _statistic(name: str, value: Any, shape: tuple[int, ...]) -> jax.Array | None:
    if value is None:
        return None
    check_array(name, value)
    array = as_array(name, value)
    check_float(name, array)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; the statistics of x have {shape}")
    return array.astype(jnp.float32)


def _vector(name: str, value: Any, channels: int) -> jax.Array | None:
    if value is None:
        return None
    check_array(name, value)
    array = as_array(name, value)
    check_float(name, array)
    if array.shape != (channels,):
        raise ValueError(f"{name} has shape {array.shape}; x's channels need ({channels},)")
    return array
