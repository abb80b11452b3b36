"""How `masked_conv` runs: vmap folded into the batch, an implementation per platform, a variant per
call.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.bits import unpack_mask
from jaxsparse.ffi import Implementation, dispatch
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.index import TileIndex
from jaxsparse.index.chosen import chosen_index, lists_of, no_index
from jaxsparse.index.mask_index import with_mask
from jaxsparse.index.tile_index import build_index
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.ops import masked_conv_device as device
from jaxsparse.ops import masked_conv_dkernel
from jaxsparse.ops import masked_conv_native as native
from jaxsparse.ops.batching import fold, loop_over, unfold
from jaxsparse.ops.geometry import Geometry
from jaxsparse.ops.masked_conv_estimate import of_this_device
from jaxsparse.ops.masked_conv_portfolio import portfolio
from jaxsparse.reference import masked_conv as reference
from jaxsparse.reference.reach_index import touched_pixels
from jaxsparse.select import Problem, choose
from jaxsparse.select.explain import record
from jaxsparse.select.select import OnDevice, default_tile, home_platform, select
from jaxsparse.select.table import estimate_with
from jaxsparse.select.variants import also_runs, table

for _platform in ("cpu", "cuda"):
    also_runs("masked_conv", _platform, "dense")
estimate_with(of_this_device)


@dataclasses.dataclass(frozen=True)
class ConvParams:
    """What is static about one call."""

    geometry: Geometry
    activation: str | None
    precision: str
    out_dtype: str
    implementation: Implementation = None


def forward(p: ConvParams) -> Callable[..., jax.Array]:
    """A function (x, kernel, bias, base, index, x_words, residual) -> out with its vmap rule; the
    selection in force is kept.
    """

    @custom_vmap
    def run(x, kernel, bias, base, index, x_words, residual):
        return dispatch(
            "masked_conv",
            p.implementation,
            cuda=functools.partial(_on_device, p, "cuda"),
            cpu=functools.partial(_on_device, p, "cpu"),
            reference=functools.partial(_reference, p),
        )(x, kernel, bias, base, index, x_words, residual)

    @run.def_vmap
    def rule(axis_size, in_batched, x, kernel, bias, base, index, x_words, residual):
        args = (x, kernel, bias, base, index, x_words, residual)
        if any(jax.tree.leaves(in_batched[1:3])):
            return loop_over(forward(p), args, in_batched), True
        xb, _, _, base_b, index_b, words_b, residual_b = in_batched
        x = fold(x, xb, axis_size)
        base = None if base is None else fold(base, base_b, axis_size)
        x_words = None if x_words is None else fold(x_words, words_b, axis_size)
        residual = None if residual is None else fold(residual, residual_b, axis_size)
        index = fold_index(index, index_b, axis_size)
        out = forward(p)(x, kernel, bias, base, index, x_words, residual)
        return unfold(out, axis_size), True

    return run


def dkernel(p: ConvParams, kernel_hw: tuple[int, int]) -> Callable[..., jax.Array]:
    """A function (x, g, index) -> float32 kernel gradient, with its vmap rule."""

    @custom_vmap
    def run(x, g, index):
        return dispatch(
            "masked_conv_dkernel",
            p.implementation,
            cuda=functools.partial(masked_conv_dkernel.dkernel, p, kernel_hw, "cuda"),
            cpu=functools.partial(masked_conv_dkernel.dkernel, p, kernel_hw, "cpu"),
            reference=functools.partial(_reference_dkernel, p, kernel_hw),
        )(x, g, index)

    @run.def_vmap
    def rule(axis_size, in_batched, *args):
        return loop_over(dkernel(p, kernel_hw), args, in_batched), True

    return run


def fold_index(index: TileIndex, batched: Any, axis_size: int) -> TileIndex:
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


def _on_device(p: ConvParams, platform: str, x, kernel, bias, base, index, x_words, residual):
    """Run the variant that `select/` chooses; the dense convolution is among them."""
    if platform == "cuda":
        native.check_pixels(index)
    problem = problem_of(p, x, kernel, index, platform)
    args = (x, kernel, bias, base, index, x_words, residual)
    branches = {
        name: functools.partial(native.forward, p, platform, name)
        for name in native.variants(p, platform, x, kernel, index, x_words)
    }
    # The dense convolution sums as XLA does for this dtype: its result is rounded before the bias.
    branches["dense"] = functools.partial(_reference, p, sum_dtype=np.dtype(p.out_dtype))
    offered = on_device(p, platform, x, kernel, index, x_words, fills=base is None)
    return select(problem, branches, index.count, offered)(*args)


def on_device(
    p: ConvParams,
    platform: str,
    x: Any,
    kernel: Any,
    index: TileIndex,
    x_words: Any = None,
    *,
    fills: bool = True,
) -> OnDevice:
    """What the handler that chooses by itself offers for this call; `fills`: without a `base`."""
    problem = problem_of(p, x, kernel, index, platform)
    ask = functools.partial(device.costs, p, platform, problem, x, kernel, index, x_words)
    costs = ask(fills=fills)
    candidates = portfolio(platform, index, costs, lambda: ask(fills=fills, cluster=4))
    rates = f"the tuning table has no rates of {problem.op} in {problem.dtype} for"
    return OnDevice(
        candidates,
        tuple(like.n_tiles for like in lists_of(index)),
        costs,
        lambda chosen: functools.partial(device.forward, p, platform, chosen),
        "" if candidates else f"{rates} any variant that takes this problem",
    )


def index_of_mask(p: ConvParams, x: Any, kernel: Any, mask: jax.Array, *, fills: bool) -> TileIndex:
    """The index of a mask for one call, with the choice in it where this platform's device makes
    it. `fills`: the call has no `base`.
    """
    tile, platform = default_tile(), home_platform()
    shape = (mask.shape[0], mask.shape[1], mask.shape[2])
    names = plan("masked_conv", p.implementation, NAMES)
    if names.get(platform) == platform and {*tile} <= {1, 2, 4, 8, 16, 32}:
        for tiles in ((tile, (8, 8)), (tile,)):
            like = no_index(shape, tiles)
            takes = [*native.variants(p, platform, x, kernel, like), "dense"]
            problem = problem_of(p, x, kernel, like, platform)
            offered = on_device(p, platform, x, kernel, like, fills=fills)
            chosen = choose(problem, takes, offered).candidates
            if chosen and len(tiles) == 1 + max(0, *(c.list for c in chosen)):
                return chosen_index(mask, tiles, chosen, implementation=p.implementation)
    built = build_index(mask, implementation=p.implementation)
    return with_mask(built, mask)


def describe(p: ConvParams, name: str, x: Any, kernel: Any, index: TileIndex, *, fills: bool):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    takes = [*native.variants(p, name, x, kernel, index), "dense"]
    problem = problem_of(p, x, kernel, index, name)
    choice = choose(problem, takes, on_device(p, name, x, kernel, index, fills=fills))
    against = {
        v: native.reason_against(p, name, v, x, kernel, index) for v in table("masked_conv", name)
    }
    return choice, {v: why for v, why in against.items() if why}


def explain(p: ConvParams, x: Any, kernel: Any, index: TileIndex, *, fills: bool) -> None:
    """Note a call for `js.explain`; `fills`: without a `base`."""
    record(
        "masked_conv",
        f"{x.dtype.name}{list(x.shape)} * {list(kernel.shape)} -> {list(index.shape)}",
        plan("masked_conv", p.implementation, NAMES),
        lambda name: describe(p, name, x, kernel, index, fills=fills),
        index,
    )


def problem_of(p: ConvParams, x: Any, kernel: Any, index: TileIndex, platform: str) -> Problem:
    """What the tuning tables know a convolution by."""
    kh, kw, per_group, outputs = kernel.shape
    features = {
        "pixels": math.prod(index.shape),
        "taps": kh * kw,
        "channels": per_group,
        "outputs": outputs,
        "groups": p.geometry.groups,
        "stride": p.geometry.strides[0] * p.geometry.strides[1],
    }
    dtype = "highest" if x.dtype == np.float32 and p.precision == "highest" else x.dtype.name
    own = p.implementation is not None
    return Problem("masked_conv", platform, dtype, features, index.n_tiles, own)


def _reference(
    p: ConvParams,
    x,
    kernel,
    bias,
    base,
    index,
    x_words,
    residual=None,
    sum_dtype=reference.FLOAT32,
):
    return reference.masked_conv(
        x,
        kernel,
        index.cover(),
        geometry=p.geometry,
        bias=bias,
        base=base,
        residual=residual,
        x_mask=None if x_words is None else unpack_mask(x_words, x.shape[2]),
        activation=p.activation,
        precision=lax_precision(p),
        out_dtype=np.dtype(p.out_dtype),
        sum_dtype=sum_dtype,
    )


def _reference_dkernel(p: ConvParams, kernel_hw, x, g, index):
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
