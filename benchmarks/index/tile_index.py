"""Mask to tile lists against `jnp.nonzero(size=)` in a jit of the same kind, and the portfolio.

    python benchmarks/index/tile_index.py [--calls N] [--samples N] [--components] [--only NAME ...]

Two figures a way of listing: the time of a call in a jitted chain of calls on distinct masks, over
its calls, which is what a user sees; and on a GPU the time between CUDA events around the same
chain, the stream held until the host has queued it. Every list is compared with NumPy's. Exit
status 1 when one is wrong.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance
from jaxsparse.index import portfolio_index
from jaxsparse.mask import blobs

SEVEN = ((1, 1), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
CASES = {
    "128": ((1, 128, 128), (4, 4)),
    "64x40": ((64, 40, 40), (2, 4)),
    "256": ((1, 256, 256), (1, 1)),
    "512": ((1, 512, 512), (4, 4)),
    "1024": ((1, 1024, 1024), (4, 4)),
    "4x1001": ((4, 1001, 1001), (4, 4)),
    "2048": ((1, 2048, 2048), (8, 8)),
    "2048 pixels": ((1, 2048, 2048), (1, 1)),
}
COSTS = np.array([[100.0, 0.0, -1.0]] + [[5.0, 0.1 * 2**t, t] for t in range(7)], np.float32)

Found = tuple[list[jax.Array], jax.Array]  # ids of every tile size; counts
Build = Callable[[jax.Array], Found]


class Times(NamedTuple):
    """Microseconds a call; `device` is NaN without CUDA events."""

    wall: float
    device: float

    def __str__(self) -> str:
        return f"{self.wall:.1f}" + ("" if np.isnan(self.device) else f" ({self.device:.1f})")


def active_tiles(mask: jax.Array, tile: tuple[int, int]) -> jax.Array:
    """Which tiles hold an active pixel, bool[tiles]."""
    images, height, width = mask.shape
    rows, cols = -(-height // tile[0]), -(-width // tile[1])
    pad = ((0, 0), (0, rows * tile[0] - height), (0, cols * tile[1] - width))
    tiles = jnp.pad(mask, pad).reshape(images, rows, tile[0], cols, tile[1])
    return tiles.any((2, 4)).reshape(-1)


def with_nonzero(*tiles: tuple[int, int]) -> Build:
    """The lists as a JAX user writes them, one after the other."""

    def build(mask: jax.Array) -> Found:
        active = [active_tiles(mask, tile) for tile in tiles]
        ids = [jnp.nonzero(a, size=a.size, fill_value=-1)[0].astype(jnp.int32) for a in active]
        return ids, jnp.stack([a.sum(dtype=jnp.int32) for a in active])

    return build


def with_index(tile: tuple[int, int], **options: Any) -> Build:
    """One list as this library makes it."""

    def build(mask: jax.Array) -> Found:
        index = js.tile_index(mask, tile, **options)
        return [index.ids], index.count[None]

    return build


def with_portfolio(mask: jax.Array) -> Found:
    """All lists, and the choice that the same kernel makes."""
    out = portfolio_index(mask, SEVEN, jnp.asarray(COSTS))
    return [index.ids for index in out.indices], out.counts


def measure(build: Build, masks: jax.Array, samples: int, clock: GpuClock | None) -> Times:
    """The best times of a call."""

    @jax.jit
    def chain(masks: list[jax.Array]) -> list[Found]:
        return [build(mask) for mask in masks]

    @jax.jit
    def timed(masks: list[jax.Array]) -> list[Any]:
        held = clock.start(masks) if clock else masks
        found, tree = jax.tree.flatten([build(mask) for mask in held])
        return jax.tree.unflatten(tree, clock.stop(found) if clock else found)

    split = list(masks)
    wall = device = float("inf")
    jax.block_until_ready(chain(split))
    for _ in range(samples):
        start = time.perf_counter()
        jax.block_until_ready(chain(split))
        wall = min(wall, time.perf_counter() - start)
    for _ in range(samples if clock else 0):
        jax.block_until_ready(timed(split))
        device = min(device, clock.microseconds() if clock else device)
    return Times(1e6 * wall / len(split), device / len(split) if clock else float("nan"))


def wrong(build: Build, masks: jax.Array, tiles: tuple[tuple[int, int], ...]) -> bool:
    """Whether some list differs from NumPy's."""
    found = jax.jit(lambda masks: [build(mask) for mask in masks])(list(masks))
    for mask, (lists, counts) in zip(masks, found, strict=True):
        for ids, count, tile in zip(lists, counts, tiles, strict=True):
            got = np.sort(np.asarray(ids)[: int(count)])
            if not np.array_equal(got, np.flatnonzero(np.asarray(active_tiles(mask, tile)))):
                return True
    return False


def main() -> int:
    """Measure, check, print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--components", action="store_true", help="time align='component' too")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    given = parser.parse_args()
    clock = GpuClock() if jax.default_backend() == "gpu" else None
    ways = ["nonzero", "index", "ordered", "nonzero x7", "portfolio"]
    ways += ["component"] * given.components
    table = Table("mask", "tile", *ways, "index", "portfolio")
    bad = False
    for shape, tile in (CASES[name] for name in given.only):
        masks = jnp.stack([jnp.asarray(blobs(shape, 0.3, seed=k)) for k in range(given.calls)])
        builds: dict[str, tuple[Build, tuple[tuple[int, int], ...]]] = {
            "nonzero": (with_nonzero(tile), (tile,)),
            "index": (with_index(tile), (tile,)),
            "ordered": (with_index(tile, ordered=True), (tile,)),
            "nonzero x7": (with_nonzero(*SEVEN), SEVEN),
            "portfolio": (with_portfolio, SEVEN),
            "component": (with_index(tile, align="component"), ()),
        }
        times = {}
        for way in ways:
            build, tiles = builds[way]
            bad |= bool(tiles) and wrong(build, masks, tiles)
            times[way] = measure(build, masks, given.samples, clock)
        pairs = [("nonzero", "index"), ("nonzero x7", "portfolio")]
        which = "wall" if clock is None else "device"
        ratios = [f"{getattr(times[a], which) / getattr(times[b], which):.1f}x" for a, b in pairs]
        table.add_row(str(shape), str(tile), *(str(times[way]) for way in ways), *ratios)
    console = Console()
    console.print(*provenance("python benchmarks/index/tile_index.py").lines(), sep="\n")
    console.print("us a call in a chain" + (" (GPU time)" if clock else ""))
    console.print(table)
    if bad:
        console.print("a list was wrong")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
