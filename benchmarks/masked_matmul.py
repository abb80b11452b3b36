"""masked_matmul against XLA's dense product of the masked operand, by granularity and sparsity.

    python benchmarks/masked_matmul.py [--size 1024] [--sparsity 0.5 0.9 0.99] [--samples 7] [--out
    FILE.md]

Exit status 1 when an output was wrong.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from products import JitSide, Row, compare, report

import jaxsparse as js

GRANULARITIES = ((32, 64), (32, 1), (1, 64), (1, 1))
SETS = 2


def draw(size: int, block: tuple[int, int], sparsity: float, seed: int) -> tuple[Any, ...]:
    """Two matrices, and a random mask of blocks."""
    rng = np.random.default_rng(seed)
    a, b = (jnp.asarray(rng.standard_normal((size, size), np.float32)) for _ in range(2))
    return a, b, jnp.asarray(rng.random([-(-size // g) for g in block]) >= sparsity)


def row(size: int, block: tuple[int, int], sparsity: float, which: str, samples: int) -> Row:
    """One mask: dense with the mask multiplied in, dense alone, and ours."""
    inputs = [draw(size, block, sparsity, seed) for seed in range(SETS)]

    def entries(mask: Any) -> jax.Array:
        return jnp.repeat(jnp.repeat(mask, block[0], 0), block[1], 1)[:size, :size]

    def masked(a: Any, b: Any, mask: Any) -> jax.Array:
        keep = entries(mask)
        if which == "out_mask":
            return jnp.where(keep, a @ b, 0.0)
        return jnp.where(keep, a, 0.0) @ b if which == "a_mask" else a @ jnp.where(keep, b, 0.0)

    def ours(a: Any, b: Any, mask: Any) -> jax.Array:
        return js.masked_matmul(a, b, **{which: mask}, granularity=block)

    with jax.default_matmul_precision("highest"):
        wants = [np.asarray(jax.jit(masked)(*args), np.float64) for args in inputs]
        plain = [np.asarray(jnp.matmul(a, b), np.float64) for a, b, _ in inputs]
    sides = [
        JitSide("dense", lambda a, b, mask: a @ b, inputs, plain),
        JitSide("dense, masked", masked, inputs, wants),
        JitSide("jaxsparse", ours, inputs, wants),
    ]
    return compare(f"{which} {block[0]}x{block[1]} at {100 * sparsity:g} %", sides, samples)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.5, 0.9, 0.99])
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cases = [(block, "a_mask") for block in GRANULARITIES]
    cases += [((32, 64), "b_mask"), ((32, 64), "out_mask")]
    rows = [
        row(given.size, block, sparsity, which, given.samples)
        for block, which in cases
        for sparsity in given.sparsity
    ]
    title = f"masked_matmul, float32, {given.size}^3"
    return report(title, rows, " ".join(["python", *sys.argv]), given.out)


if __name__ == "__main__":
    sys.exit(main())
