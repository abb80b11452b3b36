"""`masked_conv` that chooses on the device: what each variant costs, and the call. Which of them
stand beside each other: `masked_conv_portfolio`.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.chosen import ChosenIndex, lists_of
from jaxsparse.ops import masked_conv_native
from jaxsparse.ops.masked_conv_cost import Work, candidate, dense
from jaxsparse.ops.masked_conv_native import (
    ACTIVATIONS,
    DTYPES,
    attributes,
    mma_channels,
    reason_against,
    sides_of,
    sizes,
)
from jaxsparse.ops.masked_conv_portfolio import held, splits
from jaxsparse.select.costs import EVERY, Candidate, line, rows_of
from jaxsparse.select.select import Problem, table_in_force
from jaxsparse.select.table import DENSE, Rate
from jaxsparse.select.variants import Variant, table

_EVERY_BYTE = 255


def costs(
    p: Any,
    platform: str,
    problem: Problem,
    x: Any,
    kernel: Any,
    index: TileIndex,
    x_words: Any,
    *,
    fills: bool,
    cluster: int = 1,
) -> dict[str, Candidate]:
    """Name -> candidate of every variant that takes this problem and was measured, dense among
    them; those that can visit every tile without a list, and do not split K, come twice. `fills`:
    without a `base`. `cluster`: CTAs of a cluster of the launch.

    Of the variants that stand beside each other in one call only those are held that were measured
    on the same shape, the nearest: rates of another would be compared with them in vain.
    """
    work = work_of(p, x, kernel, index)._replace(fills=fills)
    tuning, known = table_in_force(platform), (problem.op, problem.dtype, work.shape)
    rates, near = tuning.rates_of(*known), tuning.nearest_shape(*known)
    found: dict[str, Candidate] = {}
    listless = index.align == "grid" and not index.may_overflow
    for name, row in table(problem.op, platform).items():
        if name not in rates or half_empty(row, kernel.shape[3]) or too_narrow(row, x):
            continue
        if platform == "cuda" and held(row) and rates[name].shape not in (near, ()):
            continue
        cost = functools.partial(_cost, platform, row, rates[name], work, cluster=cluster)
        for place, like in enumerate(lists_of(index)):
            if reason_against(p, platform, name, x, kernel, like, x_words) is None:
                found[name] = cost(like, place)
                break
        if splits(row):
            continue  # it is for few tiles
        tile = (8, 8) if row.fields.get("box") else (1, 1)
        blocks = dataclasses.replace(index, tile=tile)
        if listless and reason_against(p, platform, name, x, kernel, blocks, x_words) is None:
            every = cost(blocks, None)
            found[every.name] = every
    if DENSE in rates and platform == "cuda":
        found[DENSE] = dense(rates[DENSE], work)
    return found


def half_empty(row: Variant, outputs: int) -> bool:
    """Whether half of the columns of a tile, or more, would be past the last output channel."""
    columns = row.fields.get("tile_n", 0)
    return columns > 64 and 2 * outputs <= columns


def too_narrow(row: Variant, x: Any) -> bool:
    """Whether this is mma.sync and x has so few channels that `direct` is preferred."""
    return bool(row.fields.get("mma")) and x.shape[3] < mma_channels(x.dtype.itemsize)


def work_of(p: Any, x: Any, kernel: Any, index: TileIndex) -> Work:
    """What the cost of a call depends on besides its mask."""
    kh, kw, per_group, outputs = kernel.shape
    stride = p.geometry.strides[0] * p.geometry.strides[1]
    return Work(kh * kw, per_group, outputs, x.dtype.itemsize, math.prod(index.shape), stride)


def _cost(
    platform: str,
    row: Variant,
    rate: Rate,
    work: Work,
    index: TileIndex,
    place: int | None,
    *,
    cluster: int = 1,
) -> Candidate:
    """The candidate over list `place`, which is `index`; over every tile of it where None."""
    area, tiles = math.prod(sides_of(index)), index.n_tiles if place is None else None
    if platform == "cpu":
        where: Any = {"number": row.number, "tiles": tiles, "place": place or 0}
        macs = work.taps * work.channels * work.outputs / 1e6
        return line(rate, macs, macs * area, **where)
    processors = table_in_force(platform).processors
    where = {"place": place or 0, "tiles": tiles, "cluster": cluster}
    return candidate(row, rate, work, area, processors, **where)


def forward(
    p: Any,
    platform: str,
    candidates: tuple[Candidate, ...],
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
    index: TileIndex,
    x_words: jax.Array | None,
    residual: jax.Array | None = None,
) -> jax.Array:
    """One forward call of whichever candidate is cheapest for the count; `base` becomes the
    result.
    """
    out = (*index.shape, kernel.shape[3])
    lists = lists_of(index)[: 1 + max((c.list for c in candidates), default=0)]
    call: dict[str, int] = {
        "lhs_dilation_h": p.geometry.lhs_dilation[0],
        "lhs_dilation_w": p.geometry.lhs_dilation[1],
        "activation": ACTIVATIONS[p.activation],
        "variants": _bytes([c.number for c in candidates]),
        "lists": _bytes([_EVERY_BYTE if c.list == EVERY else c.list for c in candidates]),
        "tiles": sum(_side_code(like.tile) << (8 * t) for t, like in enumerate(lists) if t),
        **attributes(p, index),
    }
    return ffi_call(
        "jaxsparse_masked_conv_device",
        [
            (out, p.out_dtype),
            ((_workspace(p, platform, candidates, x, kernel, index),), np.uint8),
        ],
        x,
        kernel,
        index.ids,
        index.count,
        index.words,
        jnp.zeros(0, jnp.uint32) if x_words is None else x_words,
        jnp.zeros(0, jnp.float32) if bias is None else bias,
        jnp.zeros(0, p.out_dtype) if base is None else base,
        jnp.zeros(0, p.out_dtype) if residual is None else residual,
        choice_of(index, candidates),
        jnp.asarray(rows_of(candidates)),
        *(array for like in lists[1:] for array in (like.ids, like.count)),
        input_output_aliases=None if base is None else {7: 0},
        **call,  # pyright: ignore[reportArgumentType]
    )[0]


def choice_of(index: TileIndex, candidates: tuple[Candidate, ...]) -> jax.Array:
    """int32[] where the index was built with a choice among these candidates, else int32[0]."""
    if isinstance(index, ChosenIndex) and index.candidates == candidates:
        return index.choice
    return jnp.zeros(0, jnp.int32)


def _workspace(
    p: Any,
    platform: str,
    candidates: tuple[Candidate, ...],
    x: Any,
    kernel: Any,
    index: TileIndex,
) -> int:
    if platform == "cpu":
        row = next(iter(table("masked_conv", platform).values()))
        return masked_conv_native.workspace(p, platform, row, x, kernel, index)
    geometry = sizes(p, x.shape, kernel.shape, index.shape[1:])
    numbers = [c.number for c in candidates]
    ask = native(platform).masked_conv_device_workspace
    return ask(geometry, DTYPES[x.dtype.name], numbers)


def _side_code(tile: tuple[int, int]) -> int:
    """8 * log2(height) + log2(width)."""
    return 8 * (tile[0].bit_length() - 1) + tile[1].bit_length() - 1


def _bytes(values: list[int]) -> int:
    """Byte i is values[i], as int64."""
    packed = sum(v << (8 * i) for i, v in enumerate(values))
    return packed - (1 << 64) if packed >> 63 else packed
