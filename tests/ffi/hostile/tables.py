"""Tables of a bounded network that somebody made up: `python tables.py <many>` calls the handler
of this machine's device with `many` tables and starts for each kind of layers, and prints how many
calls ran, and the errors.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from ffi.hostile.draw import WILD

import jaxsparse  # noqa: F401

#: batch, n_in, depth, widest, starts, indices, weights, biases.
SIZES = (37, 20, 5, 48, 24, 64, 1024, 240)


def network(bundles: int):
    """A jitted call of (table, starts); everything else about it is valid."""
    batch, n_in, depth, widest, starts, indices, weights, biases = SIZES
    rng = np.random.default_rng(bundles)
    x = rng.standard_normal((batch, n_in)).astype(np.float32)
    index = rng.integers(0, 60, indices).astype(np.uint16)
    weight = rng.standard_normal(weights).astype(np.float32)
    bias = rng.standard_normal(biases).astype(np.float32)
    upper = np.ones(depth, np.float32)
    expand = rng.integers(0, 48, 64).astype(np.int32)
    scratch = jax.ShapeDtypeStruct((2_000_000,), np.uint8)
    out = jax.ShapeDtypeStruct((batch, 64), np.float32)
    codes = jax.ShapeDtypeStruct((batch, 1), np.uint8)
    call = jax.ffi.ffi_call("jaxsparse_bounded_network", [out, codes, scratch])
    attributes = {"first": widest, "widest": widest, "decides": 1, "bundles": bundles}
    attributes = {name: np.int64(value) for name, value in attributes.items()}

    @jax.jit
    def run(table, begins):
        out, codes, _ = call(x, table, begins, index, weight, bias, upper, expand, **attributes)
        return jnp.sum(jnp.where(jnp.isfinite(out), out, 0)), codes

    return run, (depth, 8), (starts,)


def main() -> None:
    """Command line."""
    many, ran, errors = int(sys.argv[1]), 0, set()
    values = np.asarray(WILD, np.uint32)
    for bundles in range(4):
        run, table, starts = network(bundles)
        rng = np.random.default_rng(bundles)
        for i in range(many):
            rows = values[rng.integers(0, len(values), table)]
            if i % 2:  # the units that the kernels know, so that they get further
                rows[:, 7] = (1, 16)[bundles > 0]
                rows[:, 4] = 48
            try:
                jax.block_until_ready(run(rows, values[rng.integers(0, 16, starts)].view(np.int32)))
                ran += 1
            except Exception as error:
                errors.add(str(error).splitlines()[0])
    print(ran, *sorted(errors), sep="\n")


if __name__ == "__main__":
    main()
