"""pruned_matmul against XLA's dense product: layers of a pruned ResNet-50, float32.

    JAXSPARSE_DATA=DIR python benchmarks/pruned_matmul.py [--sparsity 0.9] [--rows 0] [--samples 7]
                                                          [--out FILE.md]

`--rows 0` takes each layer's own number of positions. Exit status 1 when an output was wrong.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pruned_cases import LAYERS, layer_of
from pruned_sides import Chain, Row, compare, report

import jaxsparse as js

SETS = 3


def row(name: str, shape: tuple[int, int], positions: int, sparsity: float, samples: int) -> Row:
    """One comparison."""
    weight, source = layer_of(name, shape, sparsity)
    rng = np.random.default_rng(0)
    inputs = [
        (jnp.asarray(rng.standard_normal((positions, shape[1]), np.float32)),) for _ in range(SETS)
    ]
    wants = [np.asarray(x, np.float64) @ weight for (x,) in inputs]
    pruned, dense = js.inspect(weight), jnp.asarray(weight)

    def product(x: jax.Array) -> jax.Array:
        return x @ dense

    def sparse(x: jax.Array) -> jax.Array:
        return js.pruned_matmul(x, pruned)

    sides = [Chain("XLA", product, inputs, wants), Chain("pruned", sparse, inputs, wants)]
    title = f"{positions} x {shape[1]} -> {shape[0]}, {100 * sparsity:g} % ({source})"
    return compare(title, sides, samples)


def main() -> int:
    """Every layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [
        row(name, shape, given.rows or positions, sparsity, given.samples)
        for sparsity in given.sparsity
        for name, shape, positions in LAYERS
    ]
    command = " ".join(["python", *sys.argv])
    ratios = [r.samples["XLA"].wall_median / r.samples["pruned"].wall_median for r in rows]
    notes = [f"XLA over pruned: geomean {np.exp(np.mean(np.log(ratios))):.2f}"]
    return report("pruned_matmul, float32", rows, command, given.out, notes)


if __name__ == "__main__":
    sys.exit(main())
