"""Which tiles the windows executor may take for a convolution, and what each is estimated to cost.

Costs are microseconds on an H200. They rank what nobody has measured.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

from jaxsparse.ops.geometry import Geometry
from jaxsparse.pruned.conv_layout import Layout, Tile
from jaxsparse.pruned.device import MOST_SHARED_BYTES, shared_bytes
from jaxsparse.pruned.executor import Problem

SMS, CLOCK = 132, 1755.0  # cycles a microsecond
VARIANTS = ((1, 2), (1, 4), (1, 8), (2, 4), (4, 2), (4, 4), (4, 8), (8, 4), (8, 8))
_PLACES = (64, 128, 256, 512, 1024)
# Cycles: of a block; of a batch of loads; of a round of outputs; of a chunk; of a store.
_START, _BATCH, _ROUND, _CHUNK, _STORE = 6140.0, 672.0, 3870.0, 332.0, 76.7
# Cycles a quad takes a lone warp, and each of its positions; what it asks of shared memory beside
# four loads a position; a float that is brought there.
_QUAD_ALONE, _POSITION_ALONE, _QUAD, _FLOAT = 45.9, 0.37, 5.7, 0.12
_CROWDED = (
    2.3  # the one such tile that was measured in NHWC took so much longer than the model says
)
_BOTH = 0.84  # of the shorter of waiting and of shared memory's work is not hidden


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


def _batches(window: Window, layout: Layout) -> int:
    """Rounds of loads, each waited for, in which a warp's share of a chunk arrives."""
    tile = layout.tile
    channels, floats = min(tile.chunk, window.channels), layout.planes * layout.plane
    at_once = 8 if tile.outputs * tile.positions > 32 else 16  # of a lane
    if not window.channels_first:
        return -(-channels // 32) * -(-floats // (at_once * tile.warps))
    pieces = -(-floats // 32)
    groups = max(1, tile.warps // pieces)
    turns = 1 if groups > 1 else -(-pieces // tile.warps)
    return turns * -(-channels // (groups * at_once))


def cost(window: Window, layout: Layout) -> float:
    """An estimate, fitted to 322 measurements on an H200: what a block takes alone, waiting for the
    image and for its entries, or what all blocks of a multiprocessor ask of shared memory.
    """
    tile, chunks = layout.tile, layout.chunks
    blocks = -(-window.outputs // tile.slab) * -(-window.batch // tile.images)
    blocks *= -(-window.out_hw[0] // tile.rows) * -(-window.out_hw[1] // tile.cols)
    sums = tile.outputs * tile.positions
    registers = 128 if sums >= 32 or tile.positions == 8 else 112 if sums > 4 else 80
    at_once = min(
        MOST_SHARED_BYTES // (layout.shared_bytes + 1024),
        (1 << 16) // (registers * 32 * tile.warps),
        -(-blocks // SMS),
    )
    at_once = max(1, at_once)
    quads = (window.kept / (window.outputs * chunks) / 4 + 0.45) * tile.outputs * tile.rounds
    moved = min(tile.chunk, window.channels) * layout.planes * layout.plane * chunks
    shared = tile.warps * quads * chunks * (4 * tile.positions + _QUAD) + moved * _FLOAT
    alone = _BATCH * chunks * _batches(window, layout) + _STORE * tile.rounds * sums
    alone += chunks * (_CHUNK + quads * (_QUAD_ALONE + _POSITION_ALONE * tile.positions))
    once = _START + (tile.rounds - 1) * _ROUND
    whole, rest = divmod(-(-blocks // SMS), at_once)
    cycles = whole * (once + _together(alone, at_once * shared))
    if rest:
        cycles += once + _together(alone, rest * shared)
    if sums >= 64 and not window.channels_first and tile.output_warps < 16:
        cycles *= _CROWDED
    return 2.0 + cycles / CLOCK


def _together(waiting: float, working: float) -> float:
    return max(waiting, working) + _BOTH * min(waiting, working)


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
