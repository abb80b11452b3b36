"""The three ways of choosing a variant, side by side.

    python benchmarks/masked_conv/selection.py [--calls N] [--samples N] [--dtype T] [--only TEXT]

Microseconds a call, of a direct call (one variant, given) and of "static", "device" and "switch"
under one index built beforehand: wall time alone, wall time in a jitted chain, and on a GPU the
time between two CUDA events around the chain. Results are compared. How good the choice is:
sweep.py and rates.py.
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
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance
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
WAYS = ("static", "device", "switch")


def draw(shape: tuple[Any, ...], dtype: Any, calls: int) -> tuple[jax.Array, jax.Array]:
    """Inputs [calls, B, H, W, C] and a kernel of unit gain."""
    _, batch, side, channels, outputs, window, _ = shape
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], (calls, batch, side, side, channels), jnp.float32)
    scale = (window * window * channels) ** -0.5
    kernel = jax.random.normal(keys[1], (window, window, channels, outputs), jnp.float32) * scale
    return x.astype(dtype), kernel.astype(dtype)


def chain(
    shape: tuple[Any, ...], clock: GpuClock | None = None, **setting: Any
) -> Callable[..., list[jax.Array]]:
    """A jitted chain of calls under a setting; the settings are part of the jit key."""

    @jax.jit
    def run(xs: list[jax.Array], kernel: jax.Array, index: js.TileIndex) -> list[jax.Array]:
        if clock is not None:
            leaves, tree = jax.tree.flatten((xs, kernel, index))
            xs, kernel, index = jax.tree.unflatten(tree, clock.start(leaves))
        made = [js.masked_conv(x, kernel, index, strides=shape[6]) for x in xs]
        return made if clock is None else clock.stop(made)

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


def gpu_microseconds(
    shape: tuple[Any, ...], setting: dict[str, Any], arrays: Any, samples: int
) -> float:
    """Median GPU time of a chain."""
    clock = GpuClock()
    run = chain(shape, clock, **setting)
    took = []
    for _ in range(samples + 2):
        jax.block_until_ready(run(*arrays))
        took.append(clock.microseconds())
    return float(np.median(took[2:]))


def told(shape: tuple[Any, ...], x: jax.Array, kernel: jax.Array, index: js.TileIndex) -> Any:
    """What `explain` says of one call that leaves the choice to the device."""
    with js.config(selection="device"):
        call = lambda: js.masked_conv(x, kernel, index, strides=shape[6])  # noqa: E731
        return js.explain(call).calls[0]


def compare_ways(shape: tuple[Any, ...], dtype: Any, calls: int, samples: int) -> list[str]:
    """A row of the table: every way at density 0.3."""
    stacked, kernel = draw(shape, dtype, calls)
    xs = list(stacked)
    side = -(-shape[2] // shape[6])
    index = js.tile_index(jnp.asarray(make_masks("blobs", (shape[1], side, side), 0.3)[0]), (1, 1))
    call = told(shape, xs[0], kernel, index)
    variant = call.variant(call.counts[0])
    settings = {"direct": {"variant": variant.split(" on ")[0]}}
    settings |= {way: {"selection": way} for way in WAYS}
    want = np.asarray(chain(shape, **settings["direct"])(xs[:1], kernel, index)[0], np.float32)
    cells = [shape[0], variant]
    for setting in settings.values():
        run = chain(shape, **setting)
        got = np.asarray(run(xs[:1], kernel, index)[0], np.float32)
        if np.abs(got - want).max() > 0.05 * max(1.0, np.abs(want).max()):
            raise ValueError(f"{shape[0]}: the ways disagree")
        alone = microseconds(run, xs[:1], kernel, index, samples=samples)
        each = microseconds(run, xs, kernel, index, samples=samples) / calls
        cell = f"{alone:.1f} / {each:.1f}"
        if jax.default_backend() == "gpu":
            on_gpu = gpu_microseconds(shape, setting, (xs, kernel, index), samples)
            cell += f" / {on_gpu / calls:.1f}"
        cells.append(cell)
    return cells


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    given = parser.parse_args()
    on_gpu = jax.default_backend() == "gpu"
    shapes = [s for s in (SHAPES if on_gpu else SMALL) if given.only in s[0]]
    console = Console(width=160)
    console.print(*provenance("python benchmarks/masked_conv/selection.py").lines(), sep="\n")
    figures = "alone / chain" + (" / GPU" if on_gpu else "")
    ways = Table("shape", "variant", f"direct us: {figures}", *WAYS)
    for shape in shapes:
        ways.add_row(*compare_ways(shape, jnp.dtype(given.dtype), given.calls, given.samples))
    console.print(ways)
    return 0


if __name__ == "__main__":
    sys.exit(main())
