"""grouped_matmul against `jax.lax.ragged_dot` and the dense product of the same FLOPs: forward,
both gradients, and with gather, row weights and combine fused.

    python benchmarks/grouped_matmul.py [--experts 8 64] [--samples 7] [--out FILE.md]

Exit status 1 when an output was wrong.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from products import JitSide, Row, compare, report

import jaxsparse as js

TOKENS, DEPTH, OUTPUTS, SETS = 1024, 256, 1024, 3


def draw(experts: int, seed: int) -> dict[str, Any]:
    """Tokens with one random expert each."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, experts, TOKENS).astype(np.int32)
    routing = js.route(jnp.asarray(ids)[:, None], experts)
    return {
        "x": jnp.asarray(rng.standard_normal((TOKENS, DEPTH), np.float32)),
        "w": jnp.asarray(rng.standard_normal((experts, DEPTH, OUTPUTS), np.float32) / 16),
        "gy": jnp.asarray(rng.standard_normal((TOKENS, OUTPUTS), np.float32)),
        "weights": jnp.asarray(rng.random(TOKENS, np.float32)),
        "routing": routing,
        "sizes": routing.group_sizes,
    }


def ragged(x: Any, w: Any, sizes: Any) -> jax.Array:
    """XLA's."""
    return jax.lax.ragged_dot(x, w, sizes)


def ours(x: Any, w: Any, sizes: Any) -> jax.Array:
    """The same arguments."""
    return js.grouped_matmul(x, w, sizes)


def three_steps(x: Any, w: Any, routing: Any, weights: Any) -> jax.Array:
    """Gather, product, weighted combine."""
    y = jax.lax.ragged_dot(x[routing.gather], w, routing.group_sizes) * weights[:, None]
    return jnp.zeros((TOKENS, OUTPUTS)).at[routing.scatter].add(y)


def fused(x: Any, w: Any, routing: Any, weights: Any) -> jax.Array:
    """In one call."""
    return js.grouped_matmul(
        x,
        w,
        routing.group_sizes,
        gather=routing.gather,
        scatter=routing.scatter,
        row_weights=weights,
        num_rows=TOKENS,
    )


def lhs_grad(forward: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Of x, from a cotangent."""
    return lambda x, w, sizes, gy: jax.vjp(lambda x: forward(x, w, sizes), x)[1](gy)[0]


def rhs_grad(forward: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Of w, from a cotangent."""
    return lambda x, w, sizes, gy: jax.vjp(lambda w: forward(x, w, sizes), w)[1](gy)[0]


def rows_of(experts: int, samples: int) -> list[Row]:
    """Every comparison at one number of experts."""
    data = [draw(experts, seed) for seed in range(SETS)]

    def inputs(*names: str) -> list[tuple[Any, ...]]:
        return [tuple(d[n] for n in names) for d in data]

    def against(case: str, rival: Any, mine: Any, *names: str) -> Row:
        taken = inputs(*names)
        with jax.default_matmul_precision("highest"):
            wants = [np.asarray(jax.jit(rival)(*args), np.float64) for args in taken]
        sides = [
            JitSide("ragged_dot", rival, taken, wants),
            JitSide("jaxsparse", mine, taken, wants),
        ]
        return compare(f"E={experts} {case}", sides, samples)

    plain = [(d["x"], d["w"][0]) for d in data]
    products = [np.asarray(x, np.float64) @ np.asarray(w, np.float64) for x, w in plain]
    dense = JitSide("dense, same FLOPs", jnp.matmul, plain, products)
    return [
        compare(f"E={experts}", [dense], samples),
        against("forward", ragged, ours, "x", "w", "sizes"),
        against("gather + weights + combine", three_steps, fused, "x", "w", "routing", "weights"),
        against("dlhs", lhs_grad(ragged), lhs_grad(ours), "x", "w", "sizes", "gy"),
        against("drhs", rhs_grad(ragged), rhs_grad(ours), "x", "w", "sizes", "gy"),
    ]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [row for experts in given.experts for row in rows_of(experts, given.samples)]
    title = f"grouped_matmul, float32, {TOKENS} tokens, {DEPTH} -> {OUTPUTS}"
    return report(title, rows, " ".join(["python", *sys.argv]), given.out)


if __name__ == "__main__":
    sys.exit(main())
