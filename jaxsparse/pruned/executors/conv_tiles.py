"""Which tiles the windows executor may take for a convolution, and what each is estimated to cost.

Costs are microseconds on an H200. They rank what was not measured.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

from jaxsparse.core.device import CLOCK, MOST_SHARED_BYTES, MULTIPROCESSORS, shared_bytes
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.layouts.conv import Layout, Tile
from jaxsparse.select.table import Measured

VARIANTS = (
    *((1, 2), (1, 4), (1, 8), (2, 4), (4, 2), (4, 4), (4, 7), (4, 8), (4, 13)),
    *((8, 4), (8, 7), (8, 8)),
)
_REGISTERS = {(1, 2): 80, (1, 4): 80, (1, 8): 96, (2, 4): 88}  # of a lane; 96, from 28 sums on 128
_PLACES = (64, 128, 224, 256, 416, 512, 1024)
# Microseconds of a `call`, and of a `megabyte` of the image and the result. Cycles: of a block
# (`start`); of a `round` of outputs; of a `chunk` of channels; that a quad takes a lone warp
# (`quad_alone`), and each of its positions; of shared memory for a `result`; that a `float` takes
# on its way to shared memory, and a sum to the result (`store`), in NCHW and NHWC. `apart`, of a
# float in NCHW: more where the stride takes a plane apart. `uneven`: warps wait for one another at
# the end of a chunk, by one root of their quads. `both`: of the shorter of waiting and of shared
# memory's work, what is not hidden. `long`: tiles of 13 positions took a tenth longer or more in
# NHWC.
_MEASURED = Measured("pruned_windows", "cuda")


@dataclasses.dataclass(frozen=True)
class Window:
    """A convolution as this executor sees it: a product is an image of one row."""

    batch: int
    channels: int
    in_hw: tuple[int, int]
    out_hw: tuple[int, int]
    outputs: int
    kept: int
    channels_first: bool


PLAIN = Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1)


def seen(problem: Problem) -> tuple[Window, Callable[[Tile], Layout]]:
    """The window of a call, and tile -> its layout."""
    window, kernel, geometry = _facts(problem)
    return window, functools.partial(_layout, window, kernel, geometry)


def _layout(window: Window, kernel: tuple[int, int], geometry: Geometry, tile: Tile) -> Layout:
    return Layout.of(tile, window.channels, window.in_hw, window.out_hw, kernel, geometry)


def _facts(problem: Problem) -> tuple[Window, tuple[int, int], Geometry]:
    """The window of a call, and that of its kernel."""
    pattern, geometry = problem.pattern, problem.geometry
    if geometry is None:
        batch, in_hw, geometry = 1, (1, problem.x_shape[0]), PLAIN
    else:
        batch, in_hw = problem.x_shape[0], (problem.x_shape[1], problem.x_shape[2])
    facts = (problem.out_hw, pattern.n_out, pattern.entries, problem.channels_first)
    window = Window(batch, pattern.channels, in_hw, *facts)
    return window, pattern.window or (1, 1), geometry


def most_images(window: Window) -> int:
    """How many images a block can address: its places in them are int32."""
    return (2**31 - 1) // max(1, window.in_hw[0] * window.in_hw[1] * window.channels)


def _spatial(window: Window) -> Iterator[tuple[int, int, int]]:
    """(rows, cols, images) of tiles worth trying."""
    height, width = window.out_hw
    for places in _PLACES:
        if width >= places:
            yield 1, places, 1
        if width > places:
            continue
        rows = min(height, max(1, places // (width + 2)))
        for r in {rows, -(-height // -(-height // rows))}:
            yield r, width, 1
        whole = (height + 1) * (width + 1)
        if whole * 2 <= places and min(window.batch, most_images(window)) > 1:
            yield height, width, min(window.batch, places // whole, most_images(window))
    for rows in (1, 2, 4, 7, 8):
        if rows <= height and width <= 1024:
            yield rows, width, 1
    if height * width <= 1024:
        yield height, width, 1


def _layouts(
    window: Window, layout_of: Callable[[Tile], Layout], most_bytes: int
) -> Iterator[Layout]:
    channels = window.channels
    parts = {-(-channels // n) for n in (1, 2, 3, 4, 6, 8, 16, 32)}
    chunks = sorted({min(channels, -(-c // 8) * 8) for c in parts})
    for chunks_of in (chunks, [1]):
        found = False
        for rows, cols, images in sorted(set(_spatial(window))):
            base = layout_of(Tile(1, 2, 1, 1, 1, rows, cols, images, 1))
            for tile in _tiles(window, base, chunks_of):
                layout = base.of_tile(tile, channels)
                try:
                    layout.check(most_bytes)
                except ValueError:
                    continue
                found = True
                yield layout
        if found:
            return


def _tiles(window: Window, base: Layout, chunks: list[int]) -> Iterator[Tile]:
    """Tiles with the rows, columns and images of `base`."""
    at = base.tile
    for outputs, positions in VARIANTS:
        across = -(-base.flat // (32 * positions))
        if across > 16 or across * 32 * positions > 1.6 * base.flat + 64:
            continue
        for warps in (4, 8, 16, 24):
            down = warps // across
            if down < 1 or ((down - 1) * outputs >= window.outputs > 1 and warps > 4):
                continue
            for chunk in chunks:
                many = chunk >= window.channels and outputs == 1
                for rounds in (1, 2, 4, 8) if many else (1,):
                    yield Tile(
                        outputs, positions, across, down, rounds, at.rows, at.cols, at.images, chunk
                    )


def cost(window: Window, layout: Layout) -> float:
    """An estimate, fitted to 600 measurements on an H200: what a block takes alone, waiting for the
    image and for its entries, or what all blocks of a multiprocessor ask of shared memory.
    """
    tile, chunks, first = layout.tile, layout.chunks, window.channels_first
    (height, width), (out_height, out_width) = window.in_hw, window.out_hw
    blocks = -(-window.outputs // tile.slab) * -(-window.batch // tile.images)
    blocks *= -(-out_height // tile.rows) * -(-out_width // tile.cols)
    sums = tile.outputs * tile.positions
    registers = _REGISTERS.get((tile.outputs, tile.positions), 128 if sums >= 28 else 96)
    at_once = min(
        MOST_SHARED_BYTES // (layout.shared_bytes + 1024),
        (1 << 16) // (registers * 32 * tile.warps),
        -(-blocks // MULTIPROCESSORS),
    )
    at_once = max(1, at_once)
    quads = (window.kept / (window.outputs * chunks) / 4 + 0.45) * tile.outputs * tile.rounds
    uneven = _MEASURED("uneven") * max(quads, 1.0) ** -0.5 if chunks > 1 else 0.0
    floats = layout.planes * layout.plane
    layout_name = "NCHW" if first else "NHWC"
    moving = _MEASURED("float", layout_name) * (
        1.0 + _MEASURED("apart") * (first and layout.planes > 1)
    )
    shared = tile.warps * quads * chunks * 4 * tile.positions * (1.0 + uneven)
    shared += moving * window.channels * floats
    shared += (
        _MEASURED("result") * tile.rows * tile.cols * tile.images * min(window.outputs, tile.slab)
    )
    alone = chunks * (
        _MEASURED("chunk")
        + quads * (_MEASURED("quad_alone") + _MEASURED("position_alone") * tile.positions)
    )
    alone += _MEASURED("store", layout_name) * tile.rounds * sums
    alone += moving * min(tile.chunk, window.channels) * floats
    once = _MEASURED("start") + (tile.rounds - 1) * _MEASURED("round")
    whole, rest = divmod(-(-blocks // MULTIPROCESSORS), at_once)
    cycles = whole * (once + _together(alone, at_once * shared))
    if rest:
        cycles += once + _together(alone, rest * shared)
    if not first and tile.positions > 8:
        cycles *= _MEASURED("long")
    elements = window.channels * height * width + window.outputs * out_height * out_width
    return (
        _MEASURED("call") + cycles / CLOCK + _MEASURED("megabyte") * 4e-6 * window.batch * elements
    )


def _together(waiting: float, working: float) -> float:
    return max(waiting, working) + _MEASURED("both") * min(waiting, working)


def best(problem: Problem) -> tuple[tuple[float, Layout], ...]:
    """(estimated us, layout) of the tiles that can run here, by estimate."""
    return _best(*_facts(problem), shared_bytes())


@functools.lru_cache(maxsize=256)
def _best(
    window: Window, kernel: tuple[int, int], geometry: Geometry, most_bytes: int
) -> tuple[tuple[float, Layout], ...]:
    layout_of = functools.partial(_layout, window, kernel, geometry)
    layouts = _layouts(window, layout_of, most_bytes)
    found = [(cost(window, layout), layout) for layout in layouts]
    return tuple(sorted(found, key=lambda pair: pair[0]))
