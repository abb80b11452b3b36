"""What a recorder costs and saves in convolutions between saturated layers, with and without it in
one run.

    python benchmarks/masked_conv/recorded.py [--undecided 0.1 ...] [--most-near S ...] \\
        [--markdown FILE]

3x3, `--batch` images of 56 x 56 x 256, bfloat16, ReLU6, pixels decided in blocks of 4 x 4, 60 % of
these zero and the others at the bound. Microseconds of GPU time a call over distinct inputs,
between CUDA events while the host is ahead, each call with a mask of its own (all of it set), both
sides in turns: *without* convolves every output; *with* is given the recorder of its input, as a
convolution returned it. *Recording* returns the codes of its result, of an input that saturates
nothing. Every result is compared with the other side's. Exit status 1 when one differs by more than
bfloat16 rounds.
"""

import argparse
import shlex
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance
from jaxsparse.ops.masked_conv import windows as bounded_windows

SIDE, CHANNELS, BLOCK, CALLS, WORST = 56, 256, 4, 4, 2.0**-5
Call = Callable[..., Any]


def draw(batch: int, undecided: float, seed: int) -> tuple[jax.Array, jax.Array]:
    """Values bfloat16[batch, 56, 56, 256] and their codes uint8[batch, 56, 56, 1]."""
    kinds, values = jax.random.split(jax.random.key(seed))
    u = jax.random.uniform(kinds, (batch, SIDE // BLOCK, SIDE // BLOCK, 1))
    zero = undecided + 0.6 * (1 - undecided)
    code = jnp.where(u < undecided, js.recorder.MIXED, jnp.where(u < zero, 1, 2))
    code = code.astype(jnp.uint8).repeat(BLOCK, 1).repeat(BLOCK, 2)
    shape = (batch, SIDE, SIDE, CHANNELS)
    x = jax.random.uniform(values, shape, jnp.bfloat16, 0.5, 5.5)
    known = jnp.where(code == js.recorder.UPPER, 6.0, 0.0).astype(x.dtype)
    return jnp.where(code == js.recorder.MIXED, x, known), code


def chain(clock: GpuClock, call: Call) -> Call:
    """A jitted chain of calls (x, code, kernel, mask) over several inputs, timed by the clock."""

    @jax.jit
    def run(xs: list[jax.Array], codes: Any, kernel: Any, masks: Any) -> Any:
        xs = clock.start(xs)
        each = zip(xs, codes, masks, strict=True)
        found = [call(x, code, kernel, mask) for x, code, mask in each]
        leaves, tree = jax.tree.flatten(found)
        return jax.tree.unflatten(tree, clock.stop(leaves))

    return run


def in_turns(clock: GpuClock, runs: dict[str, Call], given: tuple[Any, ...], rounds: int) -> Any:
    """Median microseconds a call of each run, and the first results."""
    first = {name: jax.block_until_ready(run(*given))[0] for name, run in runs.items()}
    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            jax.block_until_ready(run(*given))
            took[name].append(clock.microseconds() / CALLS)
    return {name: statistics.median(each) for name, each in took.items()}, first


def plain(x: jax.Array, code: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
    """Every output."""
    return js.masked_conv(x, kernel, mask, activation="relu6")


def known(x: jax.Array, code: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
    """With the recorder of x."""
    recorder = js.recorder.Recorder(code, CHANNELS, 6.0, stored=True)
    return js.masked_conv(x, kernel, mask, activation="relu6", recorder=recorder)


def recording(x: jax.Array, code: jax.Array, kernel: jax.Array, mask: jax.Array) -> Any:
    """With the recorder of the result."""
    out, found = js.masked_conv(x, kernel, mask, activation="relu6", record=True)
    return out, found.codes


def apart(found: dict[str, Any]) -> float:
    """The largest difference between two sides' first results."""
    one, other = (jax.tree.leaves(out)[0].astype(jnp.float32) for out in found.values())
    return float(jnp.abs(one - other).max())


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    shares = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    parser.add_argument("--undecided", type=float, nargs="+", default=shares)
    kept = [bounded_windows.MOST_NEAR]
    parser.add_argument("--most-near", type=float, nargs="+", default=kept, help="thresholds")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    clock = GpuClock(3000)
    masks = [jnp.ones((args.batch, SIDE, SIDE), bool) for _ in range(CALLS)]
    scale = (9 * CHANNELS) ** -0.5
    kernel = jax.random.normal(jax.random.key(0), (3, 3, CHANNELS, CHANNELS)) * scale
    kernel = kernel.astype(jnp.bfloat16)
    lines = ["| undecided | most near | without | with | costs |", "|---:|---:|---:|---:|---:|"]
    without, worst = chain(clock, plain), 0.0
    for most in args.most_near:
        if most != bounded_windows.MOST_NEAR:  # it is read while a call is traced
            bounded_windows.MOST_NEAR = most
            jax.clear_caches()
        sides = {"without": without, "with": chain(clock, known)}
        for share in args.undecided:
            drawn = [draw(args.batch, share, seed) for seed in range(CALLS)]
            given = [x for x, _ in drawn], [code for _, code in drawn], kernel, masks
            took, found = in_turns(clock, sides, given, args.rounds)
            worst = max(worst, apart(found))
            cost = 100 * (took["with"] / took["without"] - 1)
            cells = f"{took['without']:.1f} | {took['with']:.1f} | {cost:+.1f} %"
            lines.append(f"| {share:.0%} | {most:g} | {cells} |")
            print(lines[-1], flush=True)
    drawn = [draw(args.batch, 1.0, seed) for seed in range(CALLS)]
    given = [x for x, _ in drawn], [code for _, code in drawn], kernel, masks
    sides = {"without": without, "recording": chain(clock, recording)}
    took, found = in_turns(clock, sides, given, args.rounds)
    worst = max(worst, apart(found))
    cost = 100 * (took["recording"] / took["without"] - 1)
    lines += ["", f"Recording: {took['without']:.1f} -> {took['recording']:.1f} us ({cost:+.1f} %)"]
    print(lines[-1], f"largest difference {worst:.2g}", flush=True)
    if args.markdown:
        source = provenance(shlex.join(["python", *sys.argv])).lines()
        head = ["# Recorders of convolutions", "", *(f"- {line}" for line in source), ""]
        args.markdown.write_text("\n".join([*head, *lines]) + "\n")
    return int(not worst <= WORST)


if __name__ == "__main__":
    sys.exit(main())
