"""Pruned products on CUDA against XLA's dense ones: 20 layer shapes, batch 8 and 64, in one run.

    JAXSPARSE_DATA=DIR python benchmarks/pruned_gpu.py [--sparsity 0.9 0.95] [--batch 8 64]
                       [--executor default code rows] [--shapes 1 2 3] [--seconds 600]

Sizes 1 to 10 are those of layers of ResNet-50: their patterns are those of the DLMC where
JAXSPARSE_DATA is set, random elsewhere. Prints microseconds a call in a jitted chain of ten calls
on distinct inputs, the speed-ups over the dense product at "highest" and at the default precision
(TF32), and the geometric means; "default" is what runs when no executor is demanded, and a side's
seconds are those of its first call: packing, writing, assembling. Where cupy is installed: cuSPARSE
(CSR, the faster of two layouts of x), by events. Every timed output is checked against the dense
one. Exit status 1 when one was wrong.
"""

import argparse
import contextlib
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from pruned_cases import LAYERS, layer_of, random_mask

import jaxsparse as js

# Outputs, inputs, positions of an image (or tokens of a sequence).
SHAPES = (
    *((64, 256, 3136), (256, 64, 3136), (128, 512, 784), (512, 128, 784), (256, 1024, 196)),
    *((1024, 256, 196), (512, 2048, 49), (2048, 512, 49), (2048, 512, 256), (512, 2048, 256)),
    *((512, 512, 256), (64, 32, 12544), (128, 64, 3136), (128, 128, 3136), (256, 128, 784)),
    *((256, 256, 784), (512, 256, 196), (512, 512, 196), (1024, 512, 49), (1024, 1024, 49)),
)
CALLS, SAMPLES = 10, 5


def chain(product):
    """Ten calls on ten inputs, jitted; returns the results."""
    return jax.jit(lambda xs: [product(x) for x in xs])


def time_chain(run, xs):
    """(microseconds a call: the median of some runs; seconds of the first)."""
    start = time.perf_counter()
    jax.block_until_ready(run(xs))
    first, took = time.perf_counter() - start, []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        jax.block_until_ready(run(xs))
        took.append((time.perf_counter() - start) / CALLS * 1e6)
    return float(np.median(took)), first


def cusparse(w, rows):
    """Microseconds of w.T times x.T with `rows` rows of x, w.T in CSR; None without cupy."""
    with contextlib.suppress(ImportError):
        import cupy
        from cupyx import cusparse as spmm
        from cupyx.scipy.sparse import csr_matrix

        kept: Any = csr_matrix(sp.csr_matrix(w.T))
        by_row = [cupy.random.standard_normal((rows, w.shape[0]), np.float32) for _ in range(2)]
        by_input = [cupy.asfortranarray(x.T.copy().T) for x in by_row]
        found = []
        for xs, transposed in (([x.T for x in by_row], False), (by_input, True)):
            for timed in (False, True, True):
                start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                start.record()
                for i in range(CALLS):
                    spmm.spmm(kept, xs[i % 2], transb=transposed)
                stop.record()
                stop.synchronize()
                if timed:
                    found.append(cupy.cuda.get_elapsed_time(start, stop) / CALLS * 1e3)
        return min(found)
    return None


def ways(w, executors):
    """Name -> product of a row matrix with w."""
    plan = js.inspect(w)
    dense = jnp.asarray(w)
    found = {
        "highest": lambda x: jnp.matmul(x, dense, precision="highest"),
        "tf32": lambda x: jnp.matmul(x, dense),
    }
    for executor in executors:

        def product(x, executor=None if executor == "default" else executor):
            with js.config(variant=executor):
                return js.pruned_matmul(x, plan, implementation="cuda", precision="highest")

        found[executor] = product
    return found


def weight_of(shape, sparsity):
    """float32[inputs, outputs] with a real pattern where there is one."""
    n, k, _ = shape
    name = next((name for name, size, _ in LAYERS if size == (n, k)), None)
    if name is not None:
        return layer_of(name, (n, k), sparsity)[0].astype(np.float32)
    weight = np.random.default_rng(0).standard_normal((k, n), np.float32)
    return np.where(random_mask((k, n), sparsity, 0), weight, 0).astype(np.float32)


def measure(shape, batch, sparsity, executors):
    """(name -> us, name -> seconds of the first call, whether all outputs agree); an executor that
    cannot run is left out.
    """
    _, k, positions = shape
    w = weight_of(shape, sparsity)
    keys = jax.random.split(jax.random.key(0), CALLS)
    xs = [jax.random.normal(key, (positions * batch, k)) for key in keys]
    times, first, correct, want = {}, {}, True, None
    for name, product in ways(w, executors).items():
        run = chain(product)
        try:
            times[name], first[name] = time_chain(run, xs)
        except ValueError as error:
            print(f"  {name}: {error}")
            continue
        y = run(xs)[0]
        want = y if want is None else want
        bound = 2e-2 if name == "tf32" else 1e-4
        correct &= bool(jnp.abs(y - want).max() <= bound * jnp.abs(want).max() + 1e-6)
    took = cusparse(w, positions * batch)
    if took is not None:
        times["cusparse"] = took
    return times, first, correct


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.95])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--executor", nargs="+", default=["default", "code", "rows"])
    parser.add_argument("--shapes", type=int, nargs="+", default=list(range(1, len(SHAPES) + 1)))
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    given = parser.parse_args()
    start, correct = time.monotonic(), True
    for sparsity in given.sparsity:
        for batch in given.batch:
            ratios = []
            for number in given.shapes:
                if time.monotonic() - start > given.seconds:
                    break
                times, first, right = measure(SHAPES[number - 1], batch, sparsity, given.executor)
                correct &= right
                best = min((t for e, t in times.items() if e in given.executor), default=np.inf)
                ratios.append(times["highest"] / best)
                shown = " ".join(
                    f"{name} {t:.1f}" + (f" ({first[name]:.1f} s)" if name in first else "")
                    for name, t in times.items()
                )
                against = f"{ratios[-1]:.2f}x highest, {times['tf32'] / best:.2f}x tf32"
                print(f"{sparsity:g} batch {batch} #{number}: {shown} us; {against}", flush=True)
            if ratios:
                mean = float(np.exp(np.mean(np.log(ratios))))
                print(f"{sparsity:g} batch {batch}: geometric mean {mean:.2f}x highest", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
