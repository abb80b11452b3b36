"""The three ways of choosing a variant, side by side, and the choice against the best of all.

    python benchmarks/selection.py [--calls N] [--samples N] [--masks N] [--dtype T] [--only TEXT]

First: microseconds a call alone and in a jitted chain, of a direct call (one variant, given), and
of "static", "device" and "switch" under one index built beforehand; results are compared. Then:
masks of random kind and density, the time of every variant on each, and how far the variant that
the device chooses is from the best of all that take the problem.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxsparse as js
from jaxsparse.bench.provenance import provenance
from jaxsparse.testing import make_masks

#: name, batch, side, channels, outputs, window, stride
SHAPES = (
    ("40x40x256 batch 64", 64, 40, 256, 256, 3, 1),
    ("128x128x256 batch 8", 8, 128, 256, 256, 3, 1),
    ("40x40x256 batch 16", 16, 40, 256, 256, 3, 1),
    ("256x256x128 batch 1", 1, 256, 128, 128, 3, 1),
    ("512x512x64 batch 1", 1, 512, 64, 64, 3, 1),
    ("28x28x128 batch 64", 64, 28, 128, 128, 3, 1),
)
SMALL = (("16x16x32 batch 2", 2, 16, 32, 64, 3, 1), ("24x24x64 batch 1", 1, 24, 64, 64, 3, 1))
KINDS = ("blobs", "fine_blobs", "edges", "rectangles", "random")
SLOW = ("direct",)  # for every shape, and the best on none of these
WAYS = ("static", "device", "switch")


def draw(shape: tuple[Any, ...], dtype: Any, calls: int) -> tuple[jax.Array, jax.Array]:
    """Inputs [calls, B, H, W, C] and a kernel of unit gain."""
    _, batch, side, channels, outputs, window, _ = shape
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], (calls, batch, side, side, channels), jnp.float32)
    scale = (window * window * channels) ** -0.5
    kernel = jax.random.normal(keys[1], (window, window, channels, outputs), jnp.float32) * scale
    return x.astype(dtype), kernel.astype(dtype)


def chain(shape: tuple[Any, ...], **setting: Any) -> Callable[..., list[jax.Array]]:
    """A jitted chain of calls under a setting; the settings are part of the jit key."""

    @jax.jit
    def run(xs: jax.Array, kernel: jax.Array, index: js.TileIndex) -> list[jax.Array]:
        return [js.masked_conv(x, kernel, index, strides=shape[6]) for x in xs]

    def under_setting(*arrays: Any) -> list[jax.Array]:
        with js.config(**setting):
            return run(*arrays)

    return under_setting


def microseconds(run: Callable[..., Any], *arrays: Any, samples: int) -> float:
    """Best wall time of one run."""
    jax.block_until_ready(run(*arrays))
    best = float("inf")
    for _ in range(samples):
        start = time.perf_counter()
        jax.block_until_ready(run(*arrays))
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def told(shape: tuple[Any, ...], x: jax.Array, kernel: jax.Array, index: js.TileIndex) -> Any:
    """What `explain` says of one call that leaves the choice to the device."""
    with js.config(selection="device"):
        call = lambda: js.masked_conv(x, kernel, index, strides=shape[6])  # noqa: E731
        return js.explain(call).calls[0]


def compare_ways(shape: tuple[Any, ...], dtype: Any, calls: int, samples: int) -> list[str]:
    """A row of the first table: every way alone and in a chain, at density 0.3."""
    xs, kernel = draw(shape, dtype, calls)
    side = -(-shape[2] // shape[6])
    index = js.tile_index(jnp.asarray(make_masks("blobs", (shape[1], side, side), 0.3)[0]), (1, 1))
    call = told(shape, xs[0], kernel, index)
    runs = {"direct": chain(shape, variant=call.variant(call.counts[0]).split(" on ")[0])}
    runs |= {way: chain(shape, selection=way) for way in WAYS}
    want = np.asarray(runs["direct"](xs[:1], kernel, index)[0], np.float32)
    cells = [shape[0], call.choice.how, call.variant(call.counts[0])]
    for run in runs.values():
        got = np.asarray(run(xs[:1], kernel, index)[0], np.float32)
        if np.abs(got - want).max() > 0.05 * max(1.0, np.abs(want).max()):
            raise ValueError(f"{shape[0]}: the ways disagree")
        alone = microseconds(run, xs[:1], kernel, index, samples=samples)
        each = microseconds(run, xs, kernel, index, samples=samples) / calls
        cells.append(f"{alone:.1f} / {each:.1f}")
    return cells


def regrets(
    shape: tuple[Any, ...], dtype: Any, calls: int, samples: int, masks: int, seed: int
) -> list[tuple[float, float, str]]:
    """Of each mask: the chosen variant's time over the best one's, and the device call's."""
    xs, kernel = draw(shape, dtype, calls)
    side = -(-shape[2] // shape[6])
    rng = np.random.default_rng(seed)
    full = js.tile_index(jnp.ones((shape[1], side, side), bool), (1, 1))
    call = told(shape, xs[0], kernel, full)
    platform = "cuda" if jax.default_backend() == "gpu" else "cpu"
    takes = [v.name for v in js.variants("masked_conv") if v.platform == platform]
    names = [n for n in takes if n not in call.against and n not in SLOW]
    runs = {n: chain(shape, variant=n) for n in names} | {
        "device": chain(shape, selection="device")
    }
    found = []
    for i in range(masks):
        kind, density = KINDS[i % len(KINDS)], float(rng.uniform(0.01, 1.0) ** 1.5)
        mask = make_masks(kind, (shape[1], side, side), density, seed=i)[0]
        index = jax.block_until_ready(js.tile_index(jnp.asarray(mask), (1, 1)))
        chosen = call.variant(int(index.count))
        took = {n: microseconds(r, xs, kernel, index, samples=samples) for n, r in runs.items()}
        best = min(t for n, t in took.items() if n != "device")
        alone = took.get(chosen, took["device"])  # without a list there is no direct call
        found.append((alone / best, took["device"] / best, chosen))
    return found


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--masks", type=int, default=200)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    given = parser.parse_args()
    on_gpu = jax.default_backend() == "gpu"
    shapes = [s for s in (SHAPES if on_gpu else SMALL) if given.only in s[0]]
    dtype = jnp.dtype(given.dtype)
    console = Console(width=160)
    console.print(*provenance("python benchmarks/selection.py").lines(), sep="\n")
    ways = Table("shape", "chosen", "variant", "direct us: alone / chain", *WAYS)
    for shape in shapes:
        ways.add_row(*compare_ways(shape, dtype, given.calls, given.samples))
    console.print(ways)
    table = Table(
        "shape", "masks", "within 5 %", "median", "worst", "device call: median", "chosen"
    )
    everything: list[float] = []
    for place, shape in enumerate(shapes):
        share = given.masks // len(shapes) + (place < given.masks % len(shapes))
        found = regrets(shape, dtype, min(given.calls, 5), given.samples, share, place)
        chosen, device = (np.array([f[i] for f in found]) for i in (0, 1))
        everything += list(chosen)
        kinds = ", ".join(sorted({f[2] for f in found}))
        cells = [f"{np.mean(chosen <= 1.05):.0%}", f"{np.median(chosen):.3f}"]
        cells += [f"{chosen.max():.3f}", f"{np.median(device):.3f}", kinds]
        table.add_row(shape[0], str(share), *cells)
    console.print(table)
    console.print(f"within 5 % of the best on {np.mean(np.array(everything) <= 1.05):.1%} of masks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
