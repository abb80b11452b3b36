"""The kernel's gradient on its native handlers: which variant takes which problem, and its call."""

import math
from typing import Any

import jax
import numpy as np

from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.platform import NAMES, is_hopper, plan
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.ops.masked_conv_native import DTYPES, attributes, check_pixels, sides_of, sizes
from jaxsparse.select.explain import record
from jaxsparse.select.select import Choice
from jaxsparse.select.table import Rung
from jaxsparse.select.variants import Variant, table

OP = "masked_conv_dkernel"
WHY = "the least time by the rates of the variant table"
LESS = "another takes less time by the rates of the variant table"
BY_RULE = "by rule: a small kernel, or nothing faster takes this problem"
USUAL_DENSITY = 0.3  # of the masks that a choice is made for; it is made while tracing
STEP_PIXELS = 64
CYCLES_PER_MICROSECOND = 132 * 1700.0  # of an H200's multiprocessors
SMALL_KERNEL = 32 * 1024  # weights; measured between 256 x 64 and 576 x 64


def dkernel(
    p: Any,
    kernel_hw: tuple[int, int],
    platform: str,
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    variant: str | None = None,
) -> jax.Array:
    """The kernel's gradient, float32 [kh, kw, C/g, O], of x [B,H,W,C] and g [B,Ho,Wo,O].

    Args:
        p: the convolution's `ConvParams`.
        kernel_hw: the window.
        platform: "cpu" or "cuda".
        x, g: the input and the cotangent; float32, bfloat16 or float16.
        index: of the output mask.
        variant: a row of the platform's table; None chooses.

    Raises:
        ValueError: when `variant` does not take this problem.
    """
    shape = (*kernel_hw, x.shape[3] // p.geometry.groups, g.shape[3])
    if index.align == "component" or (platform == "cuda" and index.tile != (1, 1)):
        index = pixels_of(index)
    geometry = sizes(p, x.shape, shape, index.shape[1:])
    ask = native(platform).masked_conv_dkernel_workspace
    if platform == "cpu":
        number, scratch = 0, ask(geometry, DTYPES[x.dtype.name], DTYPES[g.dtype.name])
    else:
        number = table(OP, platform)[variant or choose(p, kernel_hw, x, g)].number
        why = reason_against(p, variant, kernel_hw, x, g) if variant else None
        if why:
            raise ValueError(f"{OP}: variant={variant!r}: {why}")
        check_pixels(index)
        scratch = ask(geometry, index.capacity, *sides_of(index), number)
    return ffi_call(
        "jaxsparse_masked_conv_dkernel",
        [(shape, np.float32), ((scratch,), np.uint8)],
        x,
        g,
        index.ids,
        index.count,
        index.words,
        variant=number,
        **attributes(p, index),  # pyright: ignore[reportArgumentType]
    )[0]


def pixels_of(index: TileIndex) -> TileIndex:
    """The covered pixels one by one: no pixel twice (components overlap), no product in vain."""
    return index_of_words(cover_words(index), index.shape[2], (1, 1))


def explain(p: Any, x: Any, g: Any, kernel_shape: tuple[int, ...], index: TileIndex) -> None:
    """Tell `js.explain` of one gradient: its variant, and what speaks against the others."""

    def describe(implementation: str) -> tuple[Choice | None, dict[str, str]]:
        if implementation != "cuda":
            return None, {}
        hw = (kernel_shape[0], kernel_shape[1])
        name = choose(p, hw, x, g)
        others = [v for v in table(OP, "cuda") if v != name]
        by_rates = "tile_m" in table(OP, "cuda")[name].fields
        why, less = (WHY, LESS) if by_rates else (BY_RULE, BY_RULE)
        against = {v: reason_against(p, v, hw, x, g) or less for v in others}
        return Choice("static", (Rung(1.0, name),), why), against

    shapes = f"{x.dtype.name}{list(x.shape)} * {list(g.shape)} -> {list(kernel_shape)}"
    record(OP, shapes, plan(OP, p.implementation, NAMES), describe, index)


def choose(p: Any, kernel_hw: tuple[int, int], x: Any, g: Any) -> str:
    """The name of the CUDA variant for this problem: of the tensor-core rows that take it the one
    that takes the least time at a usual density, else `tiles`, else `direct`. A small kernel has
    little to gain from a step and much to lose from parts: `tiles`.
    """
    rows = kernel_hw[0] * kernel_hw[1] * x.shape[3]
    takes = [
        row
        for name, row in table(OP, "cuda").items()
        if reason_against(p, name, kernel_hw, x, g) is None
    ]
    tiled = [row for row in takes if "tile_m" in row.fields]
    if tiled and rows * g.shape[3] >= SMALL_KERNEL:
        return min(tiled, key=lambda row: _microseconds(row, rows, g.shape)).name
    return max((row for row in takes if row not in tiled), key=lambda row: row.number).name


def _microseconds(row: Variant, rows: int, g_shape: tuple[int, ...]) -> float:
    """What a call takes, by the measured time of its steps and of all that is not steps."""
    f = row.fields
    tiles = -(-rows // f["tile_m"]) * -(-g_shape[3] // f["tile_n"])
    steps = math.prod(g_shape[:3]) * USUAL_DENSITY / STEP_PIXELS
    return f["call_us"] + steps * tiles * f["step_cycles"] / CYCLES_PER_MICROSECOND


def reason_against(p: Any, variant: str, kernel_hw: tuple[int, int], x: Any, g: Any) -> str | None:
    """Why the CUDA `variant` does not take this problem, or None. The handler refuses by the same
    rules.
    """
    row = table(OP, "cuda")[variant]
    if variant == "direct":
        return None
    vector = 16 // x.dtype.itemsize
    if p.geometry.groups != 1:
        return f"groups={p.geometry.groups}: it takes 1"
    if x.dtype != g.dtype:
        return f"the cotangent is {g.dtype}, x is {x.dtype}: they must be equal"
    if x.shape[3] == 0 or x.shape[3] % vector or g.shape[3] % vector:
        return f"{x.shape[3]} and {g.shape[3]} channels: both must be multiples of {vector}"
    if "tile_m" not in row.fields:
        return None
    if x.dtype == np.float32:
        return "the tensor cores read float32 with K contiguous only, and its K is pixels"
    if kernel_hw[0] * kernel_hw[1] > 64 or max(kernel_hw) > 32:
        return f"a window of {kernel_hw[0]}x{kernel_hw[1]}: it takes 64 taps, 32 a side"
    return None if is_hopper() else "the device is not of compute capability 9.0"
