"""pruned_matmul against XLA's dense product and BCOO: layers of a pruned ResNet-50, float32.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/matmul.py [--sparsity 0.9] [--rows 0] [--samples 7]
                                                          [--no-bcoo] [--awake] [--out FILE.md]

`--rows 0` takes each layer's own number of positions. Exit status 1 when an output was wrong.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from cases import LAYERS, layer_of
from jax.experimental import sparse as bcoo
from sides import Chain, Row, awake, compare, keep_freed_memory, report

import jaxsparse as js

SETS = 3
PAUSE, LASTS = 0.03, 0.03  # seconds between two sides' turns, and of a chain


def row(
    name: str, shape: tuple[int, int], positions: int, sparsity: float, samples: int, slow: bool
) -> tuple[Row, float]:
    """One comparison, and the workspace over the dense activations."""
    weight, source = layer_of(name, shape, sparsity)
    rng = np.random.default_rng(0)
    inputs = [
        (jnp.asarray(rng.standard_normal((positions, shape[1]), np.float32)),) for _ in range(SETS)
    ]
    wants = [np.asarray(x, np.float64) @ weight for (x,) in inputs]
    pruned, dense = js.pruned.inspect(weight), jnp.asarray(weight)
    matrix = bcoo.BCOO.fromdense(jnp.asarray(weight.T))

    def product(x: jax.Array) -> jax.Array:
        return x @ dense

    def sparse(x: jax.Array) -> jax.Array:
        return js.pruned_matmul(x, pruned)

    sides = [Chain("XLA", product, inputs, wants), Chain("pruned", sparse, inputs, wants)]
    title = f"{positions} x {shape[1]} -> {shape[0]}, {100 * sparsity:g} % ({source})"
    took = compare(title, sides, samples, PAUSE, LASTS)
    if slow:
        side = Chain("BCOO", lambda x: (matrix @ x.T).T, inputs, wants, calls=1)
        took.samples.update(compare(title, [side], 2, PAUSE).samples)
    memory = jax.jit(sparse).lower(inputs[0][0]).compile().memory_analysis()
    used = getattr(memory, "temp_size_in_bytes", 0) / (4 * (inputs[0][0].size + wants[0].size))
    return took, float(used)


def main() -> int:
    """Every layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--no-bcoo", action="store_true", help="it takes most of the time")
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    keep_freed_memory()
    with awake(given.awake):
        rows = [
            row(name, shape, given.rows or positions, sparsity, given.samples, not given.no_bcoo)
            for sparsity in given.sparsity
            for name, shape, positions in LAYERS
        ]
    command = " ".join(["python", *sys.argv])
    notes = []
    for rival in ("XLA",) if given.no_bcoo else ("XLA", "BCOO"):
        ratios = [r.samples[rival].wall_median / r.samples["pruned"].wall_median for r, _ in rows]
        each = ", ".join(f"{v:.2f}" for v in ratios)
        notes.append(f"{rival} over pruned: geomean {np.exp(np.mean(np.log(ratios))):.2f} ({each})")
    notes.append(f"workspace over dense activations: {', '.join(f'{u:.2f}' for _, u in rows)}")
    return report("pruned_matmul, float32", [r for r, _ in rows], command, given.out, notes)


if __name__ == "__main__":
    sys.exit(main())
