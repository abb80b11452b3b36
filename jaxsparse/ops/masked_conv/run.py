"""How `masked_conv` runs on one platform: the variant that is chosen, or the reference; and the
index with the choice in it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bits import unpack_mask
from jaxsparse.core.device import home_platform
from jaxsparse.core.types import Shaped
from jaxsparse.ffi.platform import NAMES, dispatch, plan
from jaxsparse.index import TileIndex
from jaxsparse.index.checks import SIDES
from jaxsparse.index.chosen import chosen_index, lists_of, no_index
from jaxsparse.index.mask_index import with_mask
from jaxsparse.index.tile_index import build_index
from jaxsparse.ops.masked_conv import device as device
from jaxsparse.ops.masked_conv import native as native
from jaxsparse.ops.masked_conv.channels import forward, forward_of_all, tell
from jaxsparse.ops.masked_conv.fill import fill_native
from jaxsparse.ops.masked_conv.operands import EVERY, Channels, Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.reference import masked_conv as reference
from jaxsparse.reference.reach_index import read_alone, touched_pixels
from jaxsparse.select.choice import Choice
from jaxsparse.select.explain import record, watched
from jaxsparse.select.masked_conv.chooser import against
from jaxsparse.select.masked_conv.problem import OP, ConvProblem
from jaxsparse.select.select import choose, default_tile, picker
from jaxsparse.select.select import run as run_choice
from jaxsparse.select.table import DENSE
from jaxsparse.select.work import Work, result, work

#: Bytes of a dense result from which zeros are written to it by a kernel of their own.
LARGE = 2**21


def on_any(p: ConvParams, channels: Channels) -> Callable[..., jax.Array]:
    """A function of `Operands`, which have masks of these channels, on any platform."""
    cuda, cpu = (functools.partial(on_platform, p, name) for name in ("cuda", "cpu"))
    every = functools.partial(on_reference, p)
    if channels.masked():
        cuda, cpu = (functools.partial(forward, run) for run in (cuda, cpu))
        every = functools.partial(forward_of_all, every)
    return dispatch("masked_conv", p.implementation, cuda=cuda, cpu=cpu, reference=every)


def on_platform(p: ConvParams, platform: str, *given: Any):
    """Run the variant that `select/` chooses, of `Operands`; the dense one is among them."""
    operands = Operands(*given)
    if platform == "cuda":
        native.check_pixels(operands.tiles)
        hw = operands.tiles.shape[1:]
        native.check_window(p, operands.x.shape, operands.kernel.shape, hw)
    x, kernel, index = operands.x, operands.kernel, operands.tiles
    if 0 in (*index.shape, kernel.shape[-1]):  # nothing to compute, so nothing to choose
        return on_reference(p, *given)
    fills = operands.base is None
    problem = problem_of(p, platform, x, kernel, index, operands.x_words, fills=fills)
    choice = choose(OP, problem)
    branches = {name: functools.partial(native.forward, p, platform, name) for name in choice.names}
    branches[DENSE] = functools.partial(on_cuda if platform == "cuda" else on_reference, p)
    pick = picker(choice, problem.known)
    together = functools.partial(device.forward, p, platform, choice.candidates, pick=pick)
    chosen = run_choice(problem.known, choice, branches, index.count, together)
    return chosen(*operands)


def problem_of(
    p: ConvParams,
    platform: str,
    x: Shaped,
    kernel: Shaped,
    index: TileIndex,
    x_words: Shaped | None = None,
    *,
    fills: bool = True,
) -> ConvProblem:
    """What the choice for one call depends on; `fills`: without a `base`."""
    return ConvProblem(
        platform,
        tuple(x.shape),
        tuple(kernel.shape),
        index.shape,
        x.dtype.name,
        x.dtype.itemsize,
        p.geometry,
        p.precision,
        tuple(like.tile for like in lists_of(index)),
        index.align,
        index.may_overflow,
        x_words is not None,
        fills,
        p.implementation is not None,
        "" if p.called == OP else p.called,
        p.bare and fills,
    )


def index_of_mask(
    p: ConvParams, x: Shaped, kernel: Shaped, mask: jax.Array, *, fills: bool
) -> TileIndex:
    """The index of a mask for one call, with the choice in it where this platform's device makes
    it. `fills`: the call has no `base`.
    """
    tile, platform = default_tile(), home_platform()
    shape = (mask.shape[0], mask.shape[1], mask.shape[2])
    names = plan(OP, p.implementation, NAMES)
    if names.get(platform) == platform and {*tile} <= {*SIDES}:
        for tiles in ((tile, (8, 8)), (tile,)):
            problem = problem_of(p, platform, x, kernel, no_index(shape, tiles), fills=fills)
            chosen = choose(OP, problem).candidates
            if chosen and len(tiles) == 1 + max(0, *(c.list for c in chosen)):
                return chosen_index(mask, tiles, chosen, implementation=p.implementation)
    built = build_index(mask, implementation=p.implementation)
    return with_mask(built, mask)


def explain(
    p: ConvParams,
    x: Shaped,
    kernel: Shaped,
    index: TileIndex,
    channels: Channels = EVERY,
    *,
    fills: bool,
) -> None:
    """Note a call for `js.explain`; `fills`: without a `base`."""
    if not watched():
        return

    def describe(name: str) -> tuple[Choice | None, dict[str, str]]:
        if name == "reference":
            return None, {}
        problem = problem_of(p, name, x, kernel, index, fills=fills)
        return choose(OP, problem), against(problem)

    def at_width(name: str, into: int, out_of: int) -> Choice | None:
        if name == "reference":
            return None
        part = jax.ShapeDtypeStruct((*kernel.shape[:2], into, out_of), kernel.dtype)
        some = jax.ShapeDtypeStruct((*x.shape[:3], into), x.dtype)
        free = fills or channels.outputs is not None
        return choose(OP, problem_of(p, name, some, part, index, fills=free))

    record(
        p.called,
        f"{x.dtype.name}{list(x.shape)} * {list(kernel.shape)} -> {list(index.shape)}",
        plan(OP, p.implementation, NAMES),
        describe,
        index,
        work=lambda: work_of(p, x, kernel, index),
        parts=tell(channels, kernel.shape, at_width),
    )


def work_of(p: ConvParams, x: Shaped, kernel: Shaped, index: TileIndex) -> Work:
    """The most that a call multiplies and moves."""
    out = result((*index.shape, kernel.shape[3]), p.out_dtype)
    return work(math.prod(index.shape) * math.prod(kernel.shape), x, kernel, index.words, out)


def on_cuda(p: ConvParams, *given: Any):
    """XLA's convolution. Its fast ones of 16 bits round their sums before the bias. Where nothing
    follows, zeros are written to the unset pixels of a large result, and the others are not read
    again.
    """
    operands = Operands(*given)
    mask, sums = operands.tiles.cover(), np.dtype(p.out_dtype)
    more = operands.bias, operands.base, operands.residual
    small = math.prod(mask.shape) * operands.kernel.shape[3] * sums.itemsize < LARGE
    if small or p.activation is not None or any(v is not None for v in more):
        return on_reference(p, *given, sum_dtype=sums)
    y = on_reference(p, *given, sum_dtype=sums, everywhere=True)
    rows = y.reshape(-1, y.shape[3])
    select = jnp.where(mask, jnp.int32(-1), jnp.int32(0)).reshape(-1)
    zeros = jnp.zeros((1, y.shape[3]), y.dtype)
    return fill_native(zeros, select, rows).reshape(y.shape)


def on_reference(
    p: ConvParams,
    *given: Any,
    sum_dtype: np.dtype = reference.FLOAT32,
    everywhere: bool = False,
):
    """The same result without a kernel of ours: XLA's convolution, and the mask. `everywhere`:
    without the mask.
    """
    operands = Operands(*given)
    x, words, mask = operands.x, operands.x_words, operands.tiles.cover()
    height, width = operands.kernel.shape[:2]
    if p.geometry.has_gaps((height, width)):
        x = read_alone(x, mask, p.geometry.window((height, width)))
    return reference.masked_conv(
        x,
        operands.kernel,
        jnp.ones_like(mask) if everywhere else mask,
        geometry=p.geometry,
        bias=operands.bias,
        base=operands.base,
        residual=operands.residual,
        x_mask=None if words is None else unpack_mask(words, x.shape[2]),
        activation=p.activation,
        precision=lax_precision(p),
        out_dtype=np.dtype(p.out_dtype),
        sum_dtype=sum_dtype,
    )


def dkernel_on_reference(
    p: ConvParams, kernel_hw: tuple[int, int], x: jax.Array, g: jax.Array, index: TileIndex
):
    """The kernel's gradient, float32 [kh, kw, C/g, O], without a kernel of ours."""
    g = jnp.where(index.cover()[..., None], g, jnp.zeros_like(g)).astype(jnp.float32)
    # A pixel that no active output reads must not enter the product: it may hold NaN.
    x = x.astype(jnp.float32)
    shape = (*kernel_hw, x.shape[3] // p.geometry.groups, g.shape[3])
    if 0 in (*x.shape, *g.shape, *shape):
        return jnp.zeros(shape, jnp.float32)
    seen = touched_pixels(index.cover(), p.geometry.window(kernel_hw), x.shape[1:3])
    x = jnp.where(seen[..., None], x, jnp.zeros_like(x))
    linear = functools.partial(
        reference.masked_conv,
        x,
        mask=jnp.ones(index.shape, bool),
        geometry=p.geometry,
        precision=lax_precision(p),
        out_dtype=jnp.dtype(jnp.float32),
    )
    like = jax.typeof(x).update(shape=shape, dtype=np.dtype(np.float32))
    return jax.linear_transpose(linear, like)(g)[0]


def lax_precision(p: ConvParams) -> jax.lax.Precision:
    """The precision as jax.lax takes it."""
    return jax.lax.Precision.HIGHEST if p.precision == "highest" else jax.lax.Precision.DEFAULT
