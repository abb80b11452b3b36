"""Products with frozen weights that were pruned in vectors of 8 outputs, float32 at the default
precision (TF32), against XLA's in one run; random patterns.

    python benchmarks/pruned/vectors.py [--cases 4096x4096x4096 512x2048x16384]
                                        [--sparsity 0.9 0.95 0.98] [--out FILE.md]

A case is outputs x inputs x rows. Microseconds a call of GPU time: jitted chains of calls on
distinct inputs between two events in XLA's stream, which is held while the host catches up, the
least of some. The last output is checked against float32. Exit status 1 when one was wrong.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance

CALLS, ROUNDS = 8, 6
CASES = ("4096x4096x4096", "2048x2048x8192", "512x2048x16384", "2048x512x16384", "512x512x2048")
TOLERANCE = 3e-3  # of the largest value: TF32 keeps 10 bits


def weight(outputs: int, inputs: int, sparsity: float) -> np.ndarray:
    """float32[inputs, outputs], whole vectors of 8 outputs kept or not."""
    rng = np.random.default_rng(0)
    kept = np.repeat(rng.random((inputs, outputs // 8)) >= sparsity, 8, 1)
    values = rng.standard_normal((inputs, outputs), np.float32)
    return np.where(kept, values * np.float32((inputs * (1 - sparsity)) ** -0.5), 0)


def clocked(
    clock: GpuClock, call: Callable[..., jax.Array], xs: list[jax.Array], *operands: Any
) -> tuple[float, jax.Array]:
    """(microseconds a call on the GPU, the last output)."""
    run = jax.jit(lambda xs, *operands: clock.stop([call(x, *operands) for x in clock.start(xs)]))
    ys, took = jax.block_until_ready(run(xs, *operands)), []
    for _ in range(ROUNDS):
        ys = jax.block_until_ready(run(xs, *operands))
        took.append(clock.microseconds() / len(xs))
    return min(took), ys[-1]


def ours(plan: js.PrunedWeight) -> Callable[[jax.Array], jax.Array]:
    """A call that takes the executor `vectors`; the weights are constants."""

    def call(x: jax.Array) -> jax.Array:
        with js.config(variant="vectors"):
            return js.pruned_matmul(x, plan, implementation="cuda")

    return call


def measure(clock: GpuClock, case: str, sparsities: list[float]) -> tuple[list[str], bool]:
    """(lines of the table, whether every output was right)."""
    outputs, inputs, rows = (int(n) for n in case.split("x"))
    x = np.random.default_rng(1).standard_normal((rows, inputs), np.float32)
    xs = [jnp.asarray(x * np.float32(1 + i / 16)) for i in range(CALLS)]
    lines, right = [], True
    for sparsity in sparsities:
        w = weight(outputs, inputs, sparsity)
        dense, _ = clocked(clock, jnp.dot, xs, jnp.asarray(w))
        took, y = clocked(clock, ours(js.pruned.inspect(w)), xs)
        want = jnp.dot(xs[-1], jnp.asarray(w), precision="highest")
        error = float(jnp.abs(y - want).max() / jnp.abs(want).max())
        right &= error < TOLERANCE
        cells = [case, f"{sparsity:g}", f"{dense:.1f}", f"{took:.1f}", f"{dense / took:.2f}x"]
        lines.append(f"| {' | '.join(cells)} | {error:.1e} |")
        print(lines[-1], flush=True)
    return lines, right


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    clock = GpuClock(1000)
    found = [measure(clock, case, given.sparsity) for case in given.cases]
    lines = ["# Weights pruned in vectors of 8 outputs, TF32, us of GPU time a call", ""]
    lines += [*provenance(" ".join(["python", *sys.argv])).lines(), ""]
    lines += ["| outputs x inputs x rows | sparsity | XLA | vectors | | error |", "|---" * 6 + "|"]
    lines += [line for some, _ in found for line in some]
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n")
    return int(not all(right for _, right in found))


if __name__ == "__main__":
    sys.exit(main())
