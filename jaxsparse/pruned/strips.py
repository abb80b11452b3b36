"""The CPU's executor: tiles, strips and window starts (docs/packed.md, executor 0).

A tile is `rows` output rows of `pitch` pixels. Strip kx of a channel holds, for each output column,
what tap kx reads, over all input rows of the tile, so the window of a tap is contiguous, and its
start is all that an entry needs to know. Rows of the result may be cut into bands that lie side by
side (row i of every band is one long row), so that narrow images fill whole vectors.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxsparse.core.contract import CpuExecutor
from jaxsparse.core.device import workers
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.parts import share_out
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.select.choice import remember
from jaxsparse.select.table import Measured

LANES = 16
MAX_VECTORS = 14
BANDS = (1, 2, 4, 8, 16)
MAX_PANEL = 1 << 16  # floats that a 16-bit window start reaches
_CACHE = 1 << 14  # floats of a panel that the first-level cache keeps beside the rest
# Nanoseconds, with AVX-512 at 3.7 GHz; of the multiply fitted to 21 tiles of 9 layers (within 7 %):
# a vector of a window, one that crosses cache lines, one of a shared strip, what 100 KB of panel
# past the first-level cache (`kept` KB) add to them; an entry, the least that one takes; a visit of
# a row, a vector of its sums. A vector packed (1.4 to 2.3) and stored (2.5 to 4.6). Microseconds of
# a call, and until a sleeping worker takes part.
# `shared_line`: microseconds a pixel whose channels are not whole cache lines, where two workers
# write it at the same time: each waits for the line of both.
_MEASURED = Measured("pruned_strips", "cpu")
_ALIGN = 64  # bytes: a cache line
#: What the workspace may take, as a share of the activations (input and result, float32).
MOST_MEMORY = 1.3


@dataclasses.dataclass(frozen=True)
class Tile:
    """`vectors` of 16 pixels cover `rows` output rows, `pitch` floats apart. `shared`: taps that a
    shift maps onto one another read one strip. `bands` of the result lie side by side.
    """

    vectors: int
    pitch: int
    rows: int
    shared: int
    bands: int = 1

    @property
    def packed(self) -> int:
        """The attribute `tile`."""
        low = self.vectors | self.pitch << 8 | self.rows << 32
        return low | self.shared << 48 | self.bands << 49

    def spread(self, out_hw: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the bands side by side."""
        return -(-out_hw[0] // self.bands), out_hw[1] * self.bands


def phases(taps: int, stride: int, dilation: int) -> dict[int, int]:
    """Remainder modulo the stride that some tap has -> how many steps its last tap lies away, in
    the order of the first taps.
    """
    found: dict[int, int] = {}
    for tap in range(taps):
        found[tap * dilation % stride] = tap * dilation // stride
    return found


def strip_rows(kernel_h: int, stride: int, dilation: int, rows: int) -> tuple[list[int], int]:
    """Row of a strip at which the window of each ky starts, and the strip's number of rows."""
    first: dict[int, int] = {}
    count = 0
    for phase, reach in phases(kernel_h, stride, dilation).items():
        first[phase] = count
        count += rows + reach
    starts = [first[k * dilation % stride] + k * dilation // stride for k in range(kernel_h)]
    return starts, count


def strips_of(
    kernel_w: int, stride: int, dilation: int, shared: int
) -> tuple[list[int], list[int]]:
    """The strip of each kx, and how far its windows lie to the right in it."""
    if not shared:
        return list(range(kernel_w)), [0] * kernel_w
    order = list(phases(kernel_w, stride, dilation))
    taps = [k * dilation for k in range(kernel_w)]
    return [order.index(at % stride) for at in taps], [at // stride for at in taps]


def reach_of(tile: Tile, kernel_w: int, geo: Geometry) -> int:
    """Columns of a strip's row past those of the tile."""
    if not tile.shared:
        return 0
    return max(phases(kernel_w, geo.strides[1], geo.dilation[1]).values(), default=0)


def channel_floats(tile: Tile, kernel_hw: tuple[int, int], geo: Geometry) -> int:
    """Floats that one channel takes in a panel."""
    _, count = strip_rows(kernel_hw[0], geo.strides[0], geo.dilation[0], tile.rows)
    strips = kernel_hw[1]
    if tile.shared:
        strips = len(phases(kernel_hw[1], geo.strides[1], geo.dilation[1]))
    return -(-strips * count * tile.pitch // LANES) * LANES


def windows(
    indices: np.ndarray, tile: Tile, kernel_hw: tuple[int, int], geo: Geometry, block: int
) -> np.ndarray:
    """uint16[e]: where in its panel the window of each column starts."""
    kh, kw = kernel_hw
    starts, count = strip_rows(kh, geo.strides[0], geo.dilation[0], tile.rows)
    strip, shift = strips_of(kw, geo.strides[1], geo.dilation[1], tile.shared)
    channel, tap = np.divmod(indices, kh * kw)
    ky, kx = np.divmod(tap, kw)
    row = np.asarray(strip, np.int64)[kx] * count + np.asarray(starts, np.int64)[ky]
    at = channel % block * channel_floats(tile, kernel_hw, geo)
    return (at + row * tile.pitch + np.asarray(shift, np.int64)[kx]).astype(np.uint16)


def by_block(pattern: Pattern, block: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Entries in the order in which they are read: by block of channels, then by row.

    Returns:
        int32[blocks + 1, rows], the place at which each row of each block begins (it ends where the
        next one begins), and the pattern's entry at each place: None for its own order.
    """
    rows, blocks = pattern.n_out, max(-(-pattern.channels // block), 1)
    of_block = pattern.indices.astype(np.int64) // (pattern.taps * block)
    counts = np.bincount(of_block * rows + pattern.rows, minlength=blocks * rows)
    starts = np.full((blocks + 1, rows), pattern.entries, np.int32)
    starts[:-1] = (np.cumsum(counts) - counts).reshape(blocks, rows)
    order = None if blocks == 1 else np.argsort(of_block, kind="stable").astype(np.int32)
    return starts, order


def candidates(out_hw: tuple[int, int], kernel_w: int, geo: Geometry) -> Iterator[Tile]:
    """Tiles that fit: whole rows at several pitches, runs of one row, and runs of the rows of
    bands.
    """
    height, width = out_hw
    reach = reach_of(Tile(1, 1, 1, 1), kernel_w, geo)
    for shared in (1, 0) if kernel_w > 1 else (0,):
        extra = shared * reach
        tight = width + extra
        pitches = {tight, *(-(-tight // step) * step for step in (8, LANES))}
        for pitch, rows in itertools.product(sorted(pitches), range(1, height + 1)):
            vectors = -(-((rows - 1) * pitch + width) // LANES)
            if vectors <= MAX_VECTORS:
                yield Tile(vectors, pitch, rows, shared)
        yield from _runs(height, width, shared, extra, 1)
    for bands in BANDS:
        if 1 < bands <= height:
            yield from _runs(-(-height // bands), width * bands, 0, 0, bands)


def _runs(height: int, width: int, shared: int, extra: int, bands: int) -> Iterator[Tile]:
    """Tiles of whole vectors of some rows."""
    for columns in range(1, min(MAX_VECTORS, -(-width // LANES)) + 1):
        pitch = columns * LANES + extra
        for rows in range(1, min(height, MAX_VECTORS) + 1):
            vectors = -(-((rows - 1) * pitch + columns * LANES) // LANES)
            if vectors <= MAX_VECTORS:
                yield Tile(vectors, pitch, rows, shared, bands)


def item_cost(tile: Tile, parts: int, problem: Problem) -> tuple[int, float]:
    """(items, estimated nanoseconds of one): entries, visits of rows, changes of layout."""
    window, geo = _geometry(problem)
    height, width = tile.spread(problem.out_hw)
    images = 1 if problem.geometry is None else problem.x_shape[0]
    pattern = problem.pattern
    columns = tile.pitch - reach_of(tile, window[1], geo)
    tiles = images * -(-height // tile.rows) * -(-width // columns)
    floats = channel_floats(tile, window, geo)
    block = choose_block(floats, pattern.channels)
    blocks = -(-pattern.channels // block)
    load = _MEASURED("load")
    if tile.shared:
        load = _MEASURED("shifted_load")
    elif tile.pitch % LANES and window != (1, 1):
        load = _MEASURED("crossing_load")
    load += _MEASURED("spill") * max(4e-3 * block * floats - _MEASURED("kept"), 0.0) / 100
    entries = pattern.entries * max(
        tile.vectors * load + _MEASURED("entry"), _MEASURED("least_entry")
    )
    visits = pattern.n_out * blocks * (_MEASURED("visit") + _MEASURED("sum") * tile.vectors)
    divided = entries + visits + pattern.n_out * tile.vectors * _MEASURED("store")
    return tiles * parts, divided / parts + pattern.channels * floats / LANES * _MEASURED("pack")


def span(tile: Tile, parts: int, problem: Problem) -> float:
    """Estimated microseconds of a call: items are pulled, and every worker but the caller's own
    wakes up late.
    """
    items, each = item_cost(tile, parts, problem)
    each *= 1e-3
    others = min(workers(), 16) - 1
    if others == 0:
        return items * each
    even = (items * each + others * _MEASURED("late")) / (others + 1)  # if items could be cut
    own = min(items, int(even / each) + 1)
    ends = [
        max(n * each, _MEASURED("late") + -(-(items - n) // others) * each) for n in (own, own - 1)
    ]
    shared = (
        _MEASURED("shared_line") * problem.positions if parts > 1 and _cuts_lines(problem) else 0.0
    )
    return min(ends) + shared if own < items else min(*(e + shared for e in ends), items * each)


def _cuts_lines(problem: Problem) -> bool:
    """Whether the channels of a part end inside a cache line."""
    size = 4 if problem.out_dtype == "float32" else 2
    return not problem.channels_first and problem.pattern.n_out * size % _ALIGN != 0


def fits(tile: Tile, kernel_hw: tuple[int, int], geo: Geometry) -> bool:
    """Whether one channel's strips lie within reach of a 16-bit window start."""
    return channel_floats(tile, kernel_hw, geo) <= MAX_PANEL


def choose_block(floats: int, channels: int) -> int:
    """Channels of a panel that stays close to the first-level cache: equal blocks, of whole units
    of 16 where they can be.
    """
    floats, channels = max(floats, 1), max(channels, 1)
    most = max(_CACHE // floats // LANES, 1) * LANES
    most = min(most, max(MAX_PANEL // floats, 1))
    blocks = -(-channels // most)
    return min(-(-channels // (LANES * blocks)) * LANES, most)


def choose_parts(tile: Tile, problem: Problem) -> int:
    """Parts of the rows with the least estimated time, of those whose sums leave the workspace
    within MOST_MEMORY of the activations, where there are such.
    """
    window, geo = _geometry(problem)
    pattern = problem.pattern
    most = max(min(4 * workers(), -(-pattern.n_out // LANES)), 1)
    floats = channel_floats(tile, window, geo)
    block = choose_block(floats, pattern.channels)
    values = math.prod(problem.x_shape) + problem.positions * pattern.n_out
    every = range(1, most + 1)

    def needs(parts: int) -> int:
        rows = -(-pattern.n_out // parts)
        return scratch_bytes(tile, block, floats, pattern.channels, rows, pattern.n_out)

    fit = [parts for parts in every if needs(parts) <= 4 * MOST_MEMORY * values]
    return min(fit or every, key=lambda parts: span(tile, parts, problem))


def scratch_bytes(
    tile: Tile, block: int, floats: int, channels: int, part_rows: int, outputs: int
) -> int:
    """Workspace of the CPU's handler: a panel, sums and lists for each worker."""
    panel = 8 * floats + 4 * channels + 4 * (block * floats + MAX_VECTORS * LANES)
    units = min(-(-part_rows // LANES) + 1, -(-outputs // LANES))
    sums = 4 * units * LANES * LANES * tile.vectors
    lists = 4 * outputs + 4 * units + 4 * -(-outputs // LANES)
    return workers() * (panel + sums + lists + 8 * _ALIGN) + _ALIGN


class Tunables(NamedTuple):
    """What of this executor is worth measuring: a tile, the channels of a panel, the parts."""

    vectors: int
    pitch: int
    rows: int
    shared: int
    block: int
    parts: int
    bands: int = 1

    @property
    def tile(self) -> Tile:
        """All but block and parts."""
        return Tile(*self[:4], self.bands)


def _geometry(problem: Problem) -> tuple[tuple[int, int], Geometry]:
    plain = Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1)
    return problem.pattern.window or (1, 1), problem.geometry or plain


def reason_against(problem: Problem) -> str | None:
    """Why strips cannot run a problem, or None."""
    if 0 in problem.out_hw:
        return "the result is empty"
    window, geo = _geometry(problem)
    if not any(fits(t, window, geo) for t in candidates(problem.out_hw, window[1], geo)):
        return f"a window of {window} at dilation {geo.dilation} does not fit a panel"
    return None


def _tiles(problem: Problem) -> list[Tile]:
    """The tiles that fit, cheapest first."""
    window, geo = _geometry(problem)
    every = candidates(problem.out_hw, window[1], geo)
    found = [tile for tile in every if fits(tile, window, geo)]
    return sorted(found, key=lambda tile: span(tile, choose_parts(tile, problem), problem))


@remember(lambda problem: problem.key)
def _best_tile(problem: Problem) -> Tile:
    return _tiles(problem)[0]


def cost(problem: Problem) -> float:
    """Estimated microseconds."""
    tile = _best_tile(problem)
    return span(tile, choose_parts(tile, problem), problem) + _MEASURED("call")


def choices(problem: Problem) -> list[Tunables]:
    """Candidates for tuning, the default first."""
    found = [_completed(problem, tile, 1.0) for tile in _tiles(problem)[:6]]
    for tile, scale in itertools.product(_tiles(problem)[:3], (0.5, 2.0)):
        found.append(_completed(problem, tile, scale))
    units = -(-problem.pattern.n_out // LANES)
    found += [found[0]._replace(parts=parts) for parts in (1, 2, 4) if parts <= units]
    return list(dict.fromkeys(found))


def _completed(problem: Problem, tile: Tile, scale: float) -> Tunables:
    window, geo = _geometry(problem)
    floats = channel_floats(tile, window, geo)
    block = choose_block(
        max(int(floats / scale), -(-floats * LANES // MAX_PANEL)), problem.pattern.channels
    )
    block = max(min(block, MAX_PANEL // max(floats, 1)), 1)
    parts = choose_parts(tile, problem)
    return Tunables(tile.vectors, tile.pitch, tile.rows, tile.shared, block, parts, tile.bands)


def _checked(problem: Problem, given: tuple[int, ...]) -> Tunables:
    """Tunables that may come from a file."""
    least = (1, 1, 1, 0, 1, 1, 1)
    if not 0 <= len(least) - len(given) <= 1 or any(
        not isinstance(v, int) or v < low for v, low in zip(given, least, strict=False)
    ):
        raise ValueError(f"strips: {given!r} are not tunables")
    chosen = Tunables(*given)
    window, geo = _geometry(problem)
    columns = chosen.pitch - reach_of(chosen.tile, window[1], geo)
    width = min(chosen.tile.spread(problem.out_hw)[1], columns)
    covered = columns > 0 and (chosen.rows - 1) * chosen.pitch + width <= chosen.vectors * LANES
    floats = channel_floats(chosen.tile, window, geo)
    bounded = chosen.pitch < 1 << 24 and chosen.rows < 1 << 16 and chosen.parts < 1 << 16
    bounded = bounded and chosen.shared < 2 and chosen.bands in BANDS
    bounded = bounded and not (chosen.shared and chosen.bands > 1)
    if not covered or chosen.vectors > MAX_VECTORS or chosen.block * floats > MAX_PANEL:
        raise ValueError(f"strips: {chosen} does not fit {problem.pattern} on {problem.x_shape}")
    if not bounded:
        raise ValueError(f"strips: {chosen} is out of range")
    return chosen


def pack(problem: Problem, tunables: tuple[int, ...] | None = None) -> Packed:
    """The operands of executor 0 (docs/contract.md).

    Raises:
        ValueError: for tunables that do not fit the problem.
    """
    pattern = problem.pattern
    window, geo = _geometry(problem)
    default = _completed(problem, _best_tile(problem), 1.0)
    chosen = _checked(problem, tunables) if tunables else default
    tile, block = chosen.tile, chosen.block
    floats = channel_floats(tile, window, geo)
    bounds = share_out(pattern.lengths, chosen.parts)
    widest = int(np.diff(bounds).max(initial=0))
    starts, order = by_block(pattern, block)
    indices = windows(pattern.indices, tile, window, geo, block)
    return Packed(
        executor=CpuExecutor.STRIPS,
        starts=starts,
        indices=indices if order is None else indices[order],
        rows=np.concatenate([np.arange(pattern.n_out, dtype=np.int32), bounds]),
        order=order,
        tile=tile.packed,
        block=block,
        parts=chosen.parts,
        scratch=scratch_bytes(tile, block, floats, pattern.channels, widest, pattern.n_out),
    )


STRIPS = Executor("strips", "cpu", reason_against, cost, pack, choices)
