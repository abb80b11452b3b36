"""Mask to tile list against `jnp.nonzero(size=)` in a jit of the same kind, and the portfolio.

    python benchmarks/tile_index.py [--calls N] [--samples N]

A call's time is that of a jitted chain of calls on distinct masks, over its calls: what a user
sees. Every list is compared with NumPy's. Exit status 1 when one is wrong.
"""

import argparse
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxsparse as js
from jaxsparse.bench.provenance import provenance
from jaxsparse.index import portfolio_index
from jaxsparse.mask import blobs

PORTFOLIO = ((1, 1), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
CASES = [
    ((1, 128, 128), (4, 4)),
    ((64, 40, 40), (2, 4)),
    ((1, 256, 256), (1, 1)),
    ((1, 512, 512), (4, 4)),
    ((1, 1024, 1024), (4, 4)),
    ((4, 1001, 1001), (4, 4)),
    ((1, 2048, 2048), (8, 8)),
    ((1, 2048, 2048), (1, 1)),
]
COSTS = np.array([[100.0, 0.0, -1.0]] + [[5.0, 0.1 * 2**t, t] for t in range(7)], np.float32)

Build = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def active_tiles(mask: jax.Array, tile: tuple[int, int]) -> jax.Array:
    """Which tiles hold an active pixel, bool[tiles]."""
    images, height, width = mask.shape
    rows, cols = -(-height // tile[0]), -(-width // tile[1])
    pad = ((0, 0), (0, rows * tile[0] - height), (0, cols * tile[1] - width))
    tiles = jnp.pad(mask, pad).reshape(images, rows, tile[0], cols, tile[1])
    return tiles.any((2, 4)).reshape(-1)


def with_nonzero(tile: tuple[int, int]) -> Build:
    """The list as a JAX user writes it."""

    def build(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        active = active_tiles(mask, tile)
        ids = jnp.nonzero(active, size=active.size, fill_value=-1)[0].astype(jnp.int32)
        return ids, active.sum(dtype=jnp.int32)

    return build


def with_index(tile: tuple[int, int], ordered: bool) -> Build:
    """The list as this library makes it."""

    def build(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = js.tile_index(mask, tile, ordered=ordered)
        return index.ids, index.count

    return build


def with_portfolio(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All lists and the choice; the ids of the first tile size."""
    out = portfolio_index(mask, PORTFOLIO, jnp.asarray(COSTS))
    others = sum(index.ids[:1].sum() for index in out.indices[1:])
    return out.indices[0].ids, out.counts[0] + 0 * (others + out.choice)


def measure(build: Build, masks: jax.Array, samples: int) -> tuple[float, list[np.ndarray]]:
    """Best time of a call in microseconds, and the list of every mask."""

    @jax.jit
    def chain(masks: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        return [build(mask) for mask in masks]

    found = [np.sort(np.asarray(ids)[: int(count)]) for ids, count in chain(masks)]
    best = float("inf")
    for _ in range(samples):
        start = time.perf_counter()
        jax.block_until_ready(chain(masks))
        best = min(best, time.perf_counter() - start)
    return best / len(masks) * 1e6, found


def main() -> int:
    """Measure, check, print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--samples", type=int, default=10)
    given = parser.parse_args()
    table = Table(
        "mask", "tile", "nonzero us", "index us", "ordered us", "speed-up", "portfolio us"
    )
    wrong = False
    for shape, tile in CASES:
        masks = jnp.stack([jnp.asarray(blobs(shape, 0.3, seed=k)) for k in range(given.calls)])
        builds = {
            "nonzero": with_nonzero(tile),
            "index": with_index(tile, False),
            "ordered": with_index(tile, True),
        }
        times = {}
        want = [np.flatnonzero(np.asarray(active_tiles(mask, tile))) for mask in masks]
        for name, build in builds.items():
            times[name], found = measure(build, masks, given.samples)
            wrong |= not all(map(np.array_equal, found, want))
        seven, found = measure(with_portfolio, masks, given.samples)
        pixels = [np.flatnonzero(np.asarray(mask)) for mask in masks]
        wrong |= not all(map(np.array_equal, found, pixels))
        cells = [f"{times[name]:.1f}" for name in builds]
        ratio = f"{times['nonzero'] / times['index']:.1f}x"
        table.add_row(str(shape), str(tile), *cells, ratio, f"{seven:.1f}")
    console = Console()
    console.print(*provenance("python benchmarks/tile_index.py").lines(), sep="\n")
    console.print(table)
    if wrong:
        console.print("a list was wrong")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
