"""The kernel's gradient on its native handlers, and what `js.explain` is told of it."""

import math

import jax
import numpy as np

from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.index.visited import slots_of
from jaxsparse.ops.masked_conv.native import attributes, check_pixels, check_window, sides_of, sizes
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.choice import Choice
from jaxsparse.select.explain import record, watched
from jaxsparse.select.masked_conv.dkernel import OP, DkernelProblem, against, reason_against
from jaxsparse.select.select import choose
from jaxsparse.select.variants import table
from jaxsparse.select.work import result, work


def dkernel(
    p: ConvParams,
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
        problem = problem_of(p, kernel_hw, x, g)
        number = table(OP, platform)[variant or choose(OP, problem).first].number
        why = reason_against(problem, variant) if variant else None
        if why:
            raise ValueError(f"{OP}: variant={variant!r}: {why}")
        check_pixels(index)
        check_window(p, x.shape, shape, index.shape[1:])
        scratch = ask(geometry, index.capacity, *sides_of(index), number)
    return ffi_call(
        "jaxsparse_masked_conv_dkernel",
        [(shape, np.float32), ((scratch,), np.uint8)],
        x,
        g,
        index.ids,
        slots_of(index, platform),
        index.words,
        variant=number,
        **attributes(p, index),  # pyright: ignore[reportArgumentType]
    )[0]


def pixels_of(index: TileIndex) -> TileIndex:
    """The covered pixels one by one: no pixel twice (components overlap), no wasted product."""
    return index_of_words(cover_words(index), index.shape[2], (1, 1))


def problem_of(p: ConvParams, kernel_hw: tuple[int, int], x: Shaped, g: Shaped) -> DkernelProblem:
    """What the choice for one gradient depends on."""
    channels, outputs, pixels = x.shape[3], g.shape[3], math.prod(g.shape[:3])
    dtypes = x.dtype.name, g.dtype.name, x.dtype.itemsize
    return DkernelProblem(kernel_hw, channels, outputs, pixels, p.geometry.groups, *dtypes)


def explain(
    p: ConvParams, x: Shaped, g: Shaped, kernel_shape: tuple[int, ...], index: TileIndex
) -> None:
    """Tell `js.explain` of one gradient: its variant, and what speaks against the others."""
    if not watched():
        return

    def describe(implementation: str) -> tuple[Choice | None, dict[str, str]]:
        if implementation != "cuda":
            return None, {}
        problem = problem_of(p, (kernel_shape[0], kernel_shape[1]), x, g)
        choice = choose(OP, problem)
        comes_first = f"{choice.first} comes first: {choice.why}"
        others = {n: comes_first for n in choice.names if n != choice.first}
        return choice, others | against(problem)

    shapes = f"{x.dtype.name}{list(x.shape)} * {list(g.shape)} -> {list(kernel_shape)}"
    dkernel = result(kernel_shape, np.float32)
    products = math.prod(index.shape) * math.prod(kernel_shape)
    record(
        OP,
        shapes,
        plan(OP, p.implementation, NAMES),
        describe,
        index,
        work=lambda: work(products, x, g, index.words, dkernel),
    )
