"""`masked_conv` that chooses on the device: which variants stand beside each other in one call,
what each costs, and the call.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.chosen import ChosenIndex
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
from jaxsparse.select.costs import (
    EVERY,
    Candidate,
    cheapest,
    line,
    mean_cost,
    rows_of,
    typical,
)
from jaxsparse.select.portfolio import greedy
from jaxsparse.select.select import Problem, table_in_force
from jaxsparse.select.table import DENSE, Rate
from jaxsparse.select.variants import Variant, table

#: The most candidates of one call (docs/kernels/contract.md).
MOST = 8
#: Microseconds of clearing the flags that candidates which stream K need: theirs have it in their
#: rates, and the others pay it beside them.
CLEARING_US = 1.0
#: Rows of 256 columns are taken also where they are up to half a percent slower on average: the
#: rates know the last waves, which streaming K shortens, only roughly.
WIDE_AHEAD = 0.995
#: A candidate that lowers the mean share of the best by less than this is left out.
LEAST_GAIN = 0.001
#: How much longer mma.sync rows of 64 columns take beside others: the kernel that holds all leaves
#: two CTAs a multiprocessor, alone they have three or four.
NARROW_BESIDE = 1.25
#: No call takes less, whatever a line through measurements says.
LEAST_US = 0.01
#: Columns of the rows that share a kernel with those that stream K.
WIDE = 256
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
) -> dict[str, Candidate]:
    """Name -> candidate of every variant that takes this problem and was measured, dense among
    them; those that can visit every tile without a list come twice. `fills`: without a `base`.

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
        if platform == "cuda" and stands_alone(row) and rates[name].shape not in (near, ()):
            continue
        for place, like in enumerate(lists_of(index)):
            if reason_against(p, platform, name, x, kernel, like, x_words) is None:
                found[name] = _cost(platform, row, rates[name], work, like, place)
                break
        tile = (8, 8) if row.fields.get("box") else (1, 1)
        blocks = dataclasses.replace(index, tile=tile)
        if listless and reason_against(p, platform, name, x, kernel, blocks, x_words) is None:
            every = _cost(platform, row, rates[name], work, blocks, None)
            found[every.name] = every
    if DENSE in rates and platform == "cuda":
        found[DENSE] = dense(rates[DENSE], work)
    return found


def lists_of(index: TileIndex) -> tuple[TileIndex, ...]:
    """The lists that a call on this index may visit."""
    return (index, *index.others) if isinstance(index, ChosenIndex) else (index,)


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
    platform: str, row: Variant, rate: Rate, work: Work, index: TileIndex, place: int | None
) -> Candidate:
    """The candidate over list `place`, which is `index`; over every tile of it where None."""
    area, tiles = math.prod(sides_of(index)), index.n_tiles if place is None else None
    if platform == "cpu":
        where: Any = {"number": row.number, "tiles": tiles, "place": place or 0}
        macs = work.taps * work.channels * work.outputs / 1e6
        return line(rate, macs, macs * area, **where)
    processors = table_in_force(platform).processors
    return candidate(row, rate, work, area, processors, place=place or 0, tiles=tiles)


def portfolio(
    platform: str, index: TileIndex, found: dict[str, Candidate]
) -> tuple[Candidate, ...]:
    """The few candidates of one call that together are near the best of all at every density; a
    dense one, which needs no list, is among them where the index cannot overflow.
    """
    rows = table("masked_conv", platform)
    held = [c for c in found.values() if c.variant in rows]
    stand = [
        _beside(rows[c.variant], c)
        for c in held
        if platform == "cpu" or stands_alone(rows[c.variant])
    ]
    # mma.sync rows have a kernel of their own, which would be launched beside the others'.
    stand = [c for c in stand if not rows[c.variant].fields.get("mma")] or stand
    tiles = [like.n_tiles for like in lists_of(index)]

    def mean(few: tuple[Candidate, ...]) -> float:
        return mean_cost(few, *tiles) if few else math.inf

    # The two kernels that choose (docs/kernels/masked_conv.md, "In the kernel that chooses").
    broad = _few(index, [_cleared(rows[c.variant], c) for c in stand if wide(rows[c.variant])])
    whole = _few(index, [c for c in stand if not streams(rows[c.variant])])
    return broad if WIDE_AHEAD * mean(broad) <= mean(whole) else whole


def wide(row: Variant) -> bool:
    """Whether this row is in the kernel that holds those that stream K."""
    return row.fields.get("tile_n", 0) == WIDE


def streams(row: Variant) -> bool:
    """Whether this row cuts the last wave into equal runs of K."""
    return bool(row.fields.get("stream_k"))


def _cleared(row: Variant, c: Candidate) -> Candidate:
    """What the candidate costs where flags are cleared for others."""
    if streams(row):
        return c
    start, each, place, wave, per_wave = c.cost
    return c._replace(cost=(start + CLEARING_US, each, place, wave, per_wave))


def _beside(row: Variant, c: Candidate) -> Candidate:
    """What the candidate costs beside others in one call."""
    if not row.fields.get("mma") or row.fields["tile_n"] > 64:
        return c
    start, each, place, wave, per_wave = c.cost
    slower = NARROW_BESIDE
    return c._replace(cost=(start * slower, each * slower, place, wave * slower, per_wave))


def _few(index: TileIndex, stand: list[Candidate]) -> tuple[Candidate, ...]:
    if not stand:
        return ()
    masks = typical([like.n_tiles for like in lists_of(index)])
    cost = np.array([[c.at(*counts) for c in stand] for counts in masks])
    # Shares of the best of each mask: a sparse one counts as much as a full one.
    cost = np.maximum(cost, LEAST_US)
    cost /= cost.min(1, keepdims=True)
    chosen = [stand[i] for i in greedy(cost, MOST - 1, least_gain=LEAST_GAIN)]
    dense = [c for c in stand if c.list == EVERY]
    if dense and not any(c.list == EVERY for c in chosen):
        chosen.append(cheapest(dense))
    return tuple(chosen)


def stands_alone(row: Variant) -> bool:
    """Whether the kernel that chooses holds this variant: one CTA wide."""
    return row.fields["cluster"] * row.fields["split_k"] == 1


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
