"""Large frozen weights, each used and dropped.

JAX identifies the operands of a jitted function by their tree, which refers to a weight's plan, and
keeps the tree until `jax.clear_caches()`. A weight that is a constant, or used outside of jit, is
freed without it.
"""

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from soak.memory import held
from soak.report import Finding, progress

SIDE, KEPT = 1500, 0.1
#: Weights at the beginning that are not counted, and bytes that all others may leave together.
WARM, MOST_BYTES = 4, 80e6


def used(seed: int, x: jax.Array, side: int, operand: bool) -> list[weakref.ref[Any]]:
    """Inspect a weight, run it as a constant and without jit, or as an operand, and drop it."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((side, side)) < KEPT, rng.standard_normal((side, side)), 0)
    pruned = js.pruned.inspect(dense.astype(np.float32))
    if operand:
        jax.block_until_ready(jax.jit(lambda x, w: js.pruned_matmul(x, w))(x, pruned))
    else:
        jax.block_until_ready(jax.jit(lambda x: js.pruned_matmul(x, pruned))(x))
        jax.block_until_ready(js.pruned_matmul(x, pruned))
    return [weakref.ref(v) for v in (pruned, pruned.pattern, pruned.plan)]


def weights(count: int, side: int = SIDE) -> list[Finding]:
    """Drop `count` weights of side x side."""
    x = jnp.ones((4, side))
    with progress("weights", count + WARM) as step:
        for seed in range(WARM):
            used(seed, x, side, operand=bool(seed % 2))
            step(1)
        first = held()
        alone: list[weakref.ref[Any]] = []
        passed: list[weakref.ref[Any]] = []
        for seed in range(WARM, WARM + count):
            operand = seed % 4 == 3
            (passed if operand else alone).extend(used(seed, x, side, operand))
            step(1)
        gc.collect()
        kept = _alive(alone)  # before JAX's caches are cleared
        last = held()
    grown = last.bytes - first.bytes
    return [
        Finding(f"dropped weights of {side} x {side}", f"{count}, {last.bytes / 1e6:.0f} MB"),
        Finding("their patterns and plans alive", f"{kept} of {len(alone)}", "0", not kept),
        Finding(
            "of weights that were operands, with JAX's caches cleared",
            f"{_alive(passed)} of {len(passed)}",
            "0",
            not _alive(passed),
        ),
        Finding(
            "memory grew by",
            f"{grown / 1e6:.1f} MB",
            f"{MOST_BYTES / 1e6:.0f} MB",
            grown <= MOST_BYTES,
        ),
    ]


def _alive(refs: list[weakref.ref[Any]]) -> int:
    return sum(ref() is not None for ref in refs)
