"""masked_conv with masks of half of the channels, against the same call with every channel and
against XLA's dense convolution.

    python benchmarks/masked_conv/channels.py [--density D] [--samples N] [--case H,C,O,K,BATCH ...]
        [--dtype NAME] [--markdown FILE]

Every call of a chain has its own random input, mask of pixels (of density D; 1: every pixel) and
masks of channels. Results are compared with the reference.

Times are microseconds per call: device time on a GPU, wall time on a CPU (docs/measuring.md). In
brackets: which share of the possible saving is reached, against the call with every channel, and
against XLA dense where it was measured (density 1). With half of both, a quarter of the products is
left, so the share is (full - time) / (3/4 full): 1 is ideal, 0 means no gain. The exit status is 1
when a result was wrong.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse.bench.masked_conv.run import platform_name
from jaxsparse.bench.measure.chain import ChainSide, Pool, tolerance
from jaxsparse.bench.measure.timing import Samples, interleave
from jaxsparse.bench.report.provenance import provenance

Masks = tuple[jax.Array, jax.Array | None, jax.Array | None]
NUMBERS = ("NHWC", "HWIO", "NHWC")


class Case(NamedTuple):
    """Square images and a kernel of stride 1."""

    side: int
    channels: int
    outputs: int
    window: int
    batch: int

    def __str__(self) -> str:
        image = f"{self.batch}x{self.side}x{self.side}x{self.channels}"
        return f"{image} to {self.outputs}, {self.window}x{self.window}"


CASES = {
    "cpu": [
        Case(56, 128, 128, 3, 1),
        Case(28, 256, 256, 3, 1),
        Case(56, 64, 64, 3, 1),
        Case(56, 256, 256, 1, 1),
    ],
    "cuda": [
        Case(56, 256, 256, 3, 16),
        Case(28, 512, 512, 3, 32),
        Case(112, 128, 128, 3, 16),
        Case(56, 256, 256, 3, 64),
        Case(56, 512, 512, 1, 32),
    ],
}
#: Name of a side -> whether it masks half of the inputs, and half of the outputs.
HALVES = {"in_channels": (True, False), "out_channels": (False, True), "both": (True, True)}


def half(rng: np.random.Generator, n: int) -> jax.Array:
    """A mask with n // 2 active channels."""
    return jnp.asarray(np.isin(np.arange(n), rng.permutation(n)[: n // 2]))


def dense(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's convolution of all channels, at every pixel."""
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NUMBERS)


def reference(x: jax.Array, masks: Masks, operands: Any) -> jax.Array:
    """The expected result of a call."""
    mask, ins, outs = masks
    options = {"in_channels": ins, "out_channels": outs, "implementation": "reference"}
    return js.masked_conv(x, operands[0], mask, **options)


def sides_of(case: Case, dtype: str, density: float, calls: int, sets: int) -> list[ChainSide]:
    """The sides of one case: dense, every channel, and halves of the channels."""
    rng = np.random.default_rng(0)
    scale = (case.window**2 * case.channels) ** -0.5
    shape = case.window, case.window, case.channels, case.outputs
    kernel = jnp.asarray(rng.standard_normal(shape, np.float32) * scale).astype(dtype)

    def draw(seed: int) -> jax.Array:
        image = case.batch, case.side, case.side, case.channels
        return jax.random.normal(jax.random.key(seed), image).astype(dtype)

    def pool_of(into: bool, out_of: bool) -> Pool:
        pixels = case.batch, case.side, case.side
        masks = [
            (
                jnp.asarray(rng.random(pixels) < density),
                half(rng, case.channels) if into else None,
                half(rng, case.outputs) if out_of else None,
            )
            for _ in range(calls)
        ]
        return Pool(draw, reference, (kernel, masks), masks, sets=sets)

    def sparse(i: int, x: jax.Array, operands: Any) -> jax.Array:
        mask, ins, outs = operands[1][i]
        return js.masked_conv(x, operands[0], mask, in_channels=ins, out_channels=outs)

    every = pool_of(False, False)
    sides = [ChainSide("every channel", every, sparse)]
    if density == 1:
        sides.append(ChainSide("dense", every, lambda i, x, operands: dense(x, operands[0])))
    return sides + [ChainSide(name, pool_of(*of), sparse) for name, of in HALVES.items()]


def line(case: Case, took: dict[str, Samples], queued: bool) -> str:
    """A row of the table: microseconds per call, and the shares of the possible saving."""
    us = {k: 1e6 * (v.device_median if queued else v.wall_median) for k, v in took.items()}
    full = us.pop("every channel")
    plain = us.pop("dense", None)
    cells = ["-" if plain is None else f"{plain:.1f}", f"{full:.1f}"]
    for name, (into, out_of) in HALVES.items():
        cut = 1 - 0.5 ** (into + out_of)
        kept = [f"{(of - us[name]) / (cut * of):.2f}" for of in (full, plain) if of is not None]
        cells.append(f"{us[name]:.1f} ({' / '.join(kept)})")
    return f"| {case} | {' | '.join(cells)} |"


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--density", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--case", action="append", help="side,channels,outputs,window,batch")
    parser.add_argument("--dtype")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    platform = platform_name()
    dtype = args.dtype or ("float32" if platform == "cpu" else "bfloat16")
    given = [Case(*map(int, text.split(","))) for text in args.case or ()]
    queued, wrong = platform != "cpu", []
    lines = [
        "| case | XLA dense | every channel | half of in_channels | half of out_channels | both |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    for case in given or CASES[platform]:
        sides = sides_of(case, dtype, args.density, args.calls, 2 if queued else 1)
        took = interleave(sides, samples=args.samples, device=queued)
        for name, samples in took.items():
            if samples.failure or not samples.error <= tolerance(dtype, platform):
                wrong.append(f"{case} {name}: {samples.failure or samples.error}")
                print(wrong[-1], file=sys.stderr, flush=True)
        lines.append(line(case, took, queued))
        print(lines[-1], flush=True)
    if args.markdown:
        source = provenance(shlex.join(["python", *sys.argv])).lines()
        text = (
            f"Microseconds per call, {dtype}, pixels of density {args.density:g}. In brackets: the "
            "share of the possible saving that is reached, against the call with every channel, "
            "and against XLA's dense convolution where it was measured. 1 is ideal, 0 means no "
            "gain."
        )
        head = ["# masked_conv with masks of channels", "", *(f"- {s}" for s in source), "", text]
        args.markdown.write_text("\n".join([*head, "", *lines]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
