"""Few rows of x times a large pruned weight on CUDA, against XLA's dense product, bfloat16.

    python benchmarks/pruned/decode.py [--size 4096 8192] [--rows 1 8 16] [--sparsity 0.9]
                                       [--executor runs lanes pairs]

Microseconds a call in a jitted chain of 24 calls, each with weights of its own, so that none is in
L2 when it is read. The last output of every chain is checked. Exit status 1 when one was
wrong.
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

CALLS, SAMPLES = 24, 15


def time_chain(run, x):
    """Microseconds a call: the median of some chains."""
    jax.block_until_ready(run(x))
    took = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        jax.block_until_ready(run(x))
        took.append((time.perf_counter() - start) / CALLS * 1e6)
    return float(np.median(took))


def sides(w, executors):
    """Name -> jitted chain, its weights built in: dense, then each executor."""
    dense = [jnp.asarray(w, jnp.bfloat16) * jnp.bfloat16(2.0 ** (i % 2)) for i in range(CALLS)]
    plan = js.pruned.inspect(dense[0])
    plans = [plan.with_values(plan.values * jnp.bfloat16(2.0 ** (i % 2))) for i in range(CALLS)]
    operands = jax.jit(lambda x, ws: [x @ w for w in ws])
    found = {"dense": lambda x: operands(x, dense)}
    for executor in executors:

        def chain(x, executor=executor):
            with js.config(variant=executor):
                return [js.pruned_matmul(x, p, implementation="cuda") for p in plans]

        found[executor] = jax.jit(chain)
    return found


def measure(size, rows, sparsity, executors):
    """(name -> us, whether all outputs agree)."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((size, size), np.float32) / np.float32(size**0.5)
    w = np.where(rng.random((size, size), np.float32) >= sparsity, w, 0)
    x = jnp.asarray(rng.standard_normal((rows, size), np.float32), jnp.bfloat16)
    times, correct, want = {}, True, None
    for name, run in sides(w, executors).items():
        times[name] = time_chain(run, x)
        y = np.asarray(run(x)[-1], np.float32)
        want = y if want is None else want
        correct &= bool(np.abs(y - want).max() <= 2e-2 * np.abs(want).max() + 1e-6)
    return times, correct


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9])
    parser.add_argument("--executor", nargs="+", default=["runs", "lanes", "pairs"])
    given, correct = parser.parse_args(), True
    for size in given.size:
        for sparsity in given.sparsity:
            for rows in given.rows:
                times, right = measure(size, rows, sparsity, given.executor)
                correct &= right
                shown = " ".join(
                    f"{name} {t:.1f} ({times['dense'] / t:.2f}x)" for name, t in times.items()
                )
                print(f"{size} x {size}, {sparsity:g}, {rows} rows: {shown} us", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
