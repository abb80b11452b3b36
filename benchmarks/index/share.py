"""What an index costs the convolutions that it serves: GPU time of chains of two convolutions on
an index that is built in the chain, against the same on indices that were built before.

    python benchmarks/index/share.py [--case NAME ...] [--density D ...] [--pairs N] [--samples N]

The difference of the two chains is the whole runtime: bits, lists, counts, the choice. GPU only.
"""

import argparse
import sys
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
from jaxsparse.testing.cases import case

NAMES = [
    "b16_40x40x256",
    "b64_40x40x256",
    "b8_128x128x256",
    "b4_256x256x128",
    "b1_512x512x64",
    "b1_512x512x256",
    "b1_1024x1024x64",
    "b64_56x56x64",
]


def chain_times(name: str, density: float, pairs: int, samples: int) -> tuple[float, float]:
    """GPU microseconds of two convolutions and their index, and of the convolutions alone."""
    problem = case(name)
    clock = GpuClock()
    keys = jax.random.split(jax.random.key(0), 2 * pairs)
    xs = [jax.random.normal(key, problem.x_shape, jnp.bfloat16) for key in keys]
    kernel = jnp.asarray(problem.array("kernel", 0)).astype(jnp.bfloat16)
    made = make_masks("blobs", problem.mask_shape, density, count=pairs)
    masks = [jnp.asarray(mask) for mask in made]
    indices = [js.tile_index(mask) for mask in masks]

    def convolve(index: Any, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = [js.masked_conv(x, kernel, index, **problem.options) for x in (a, b)]
        return out[0], out[1]

    @jax.jit
    def both(xs: list[jax.Array], masks: list[jax.Array]) -> list[jax.Array]:
        held = clock.start([*xs, *masks])
        xs, masks = held[: len(xs)], held[len(xs) :]
        out = [
            y
            for k, mask in enumerate(masks)
            for y in convolve(js.tile_index(mask), xs[2 * k], xs[2 * k + 1])
        ]
        return clock.stop(out)

    @jax.jit
    def alone(xs: list[jax.Array], indices: list[Any]) -> list[jax.Array]:
        xs = clock.start(xs)
        out = [
            y for k, index in enumerate(indices) for y in convolve(index, xs[2 * k], xs[2 * k + 1])
        ]
        return clock.stop(out)

    times: dict[str, list[float]] = {"both": [], "alone": []}
    for _ in range(samples + 1):
        jax.block_until_ready(both(xs, masks))
        times["both"].append(clock.microseconds())
        jax.block_until_ready(alone(xs, indices))
        times["alone"].append(clock.microseconds())
    both_us, alone_us = (float(np.median(times[way][1:])) / pairs for way in times)
    return both_us, alone_us


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="*", default=NAMES)
    parser.add_argument("--density", nargs="*", type=float, default=[0.3])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=10)
    given = parser.parse_args()
    if jax.default_backend() != "gpu":
        sys.exit("JAX sees no GPU: nothing to time")
    table = Table("case", "density", "a convolution us", "index us", "share")
    for name in given.case:
        for density in given.density:
            both, alone = chain_times(name, density, given.pairs, given.samples)
            share = f"{100 * (both - alone) / both:.1f} %"
            table.add_row(name, f"{density}", f"{alone / 2:.1f}", f"{both - alone:.1f}", share)
    console = Console()
    console.print(*provenance("python benchmarks/index/share.py").lines(), sep="\n")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
