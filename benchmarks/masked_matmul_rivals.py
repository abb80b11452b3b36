"""Masked products on an NVIDIA GPU against other ways of multiplying a sparse matrix, in one run.

    python benchmarks/masked_matmul_rivals.py [--size 4096] [--dtype bfloat16 float32]
        [--block 32x64 32x1 1x64] [--sparsity 0.5 0.9 0.95] [--seconds 600] [--no-bcoo]

A random mask on the left operand. Microseconds of GPU time a call over distinct inputs: a jitted
chain for JAX's sides (the index and the packing are part of ours), CUDA events for the others, who
are given a matrix that is already converted. Every output is checked against float32 products at
"highest". "convert" is what torch's `to_sparse_csr` takes, "index" what ours takes with 8 columns.
Exit status 1 when an output was wrong.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import masked_matmul_triton
import numpy as np
import torch
from jax.experimental import sparse as jax_sparse

import jaxsparse as js

CALLS, ROUNDS = 6, 5
BOUND = {"bfloat16": 2e-2, "float32": 4e-3}
BCOO_FROM = 0.99


def chained(function: Callable[..., Any], inputs: list[Any]) -> tuple[float, Any]:
    """Microseconds a call of a jitted chain, less what starting it takes, and its first result."""
    run = jax.jit(lambda given: [function(*each) for each in given])
    took = []
    first = jax.block_until_ready(run(inputs))[0]
    for _ in range(ROUNDS):
        spans = []
        for chains in (1, 3):
            start = time.perf_counter()
            for _ in range(chains):
                out = run(inputs)
            jax.block_until_ready(out)
            spans.append(time.perf_counter() - start)
        took.append((spans[1] - spans[0]) / (2 * len(inputs)) * 1e6)
    return float(np.median(took)), first


def evented(function: Callable[..., Any], inputs: list[Any]) -> tuple[float, Any]:
    """As `chained`, for eager calls on torch's stream."""
    first, took = function(*inputs[0]), []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for each in inputs:
            function(*each)
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) / len(inputs) * 1e3)
    return float(np.median(took)), first


def to_torch(value: jax.Array) -> torch.Tensor:
    """The same memory as a torch tensor."""
    return torch.from_dlpack(value)


def cusparse(a: torch.Tensor, b: torch.Tensor) -> tuple[float, Any]:
    """cuSPARSE's CSR product in float32, through cupy."""
    import cupy
    from cupyx.scipy import sparse

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        left = sparse.csr_matrix(cupy.from_dlpack(a.float()))
        right = cupy.asfortranarray(cupy.from_dlpack(b.float()))
        us, y = evented(lambda x: left @ x, [(right,)] * 3)
        return us, torch.from_dlpack(cupy.ascontiguousarray(y))


def sides(
    a: list[jax.Array], b: jax.Array, masks: list[jax.Array], block: tuple[int, int], bcoo: bool
) -> dict[str, Callable[[], tuple[float, Any]]]:
    """Name -> a function that measures: (us, the first result)."""
    ours = functools.partial(js.masked_matmul, granularity=block, implementation="cuda")
    kept = [x * expand(m, block, x.shape).astype(x.dtype) for x, m in zip(a, masks, strict=True)]
    given = [(x, b, m) for x, m in zip(a, masks, strict=True)]
    narrow = b[:, :8]
    found = {
        "ours": lambda: chained(lambda x, y, m: ours(x, y, a_mask=m), given),
        "XLA dense": lambda: chained(jnp.matmul, [(x, b) for x in kept]),
        "cuSPARSE": lambda: cusparse(to_torch(kept[0]), to_torch(b)),
        "index": lambda: chained(
            lambda x, y, m: ours(x, y, a_mask=m), [(x, narrow, m) for x, _, m in given]
        ),
        "convert": lambda: evented(lambda x: x.to_sparse_csr(), [(to_torch(x),) for x in kept[:2]]),
    }
    if block[0] >= 16 and block[1] >= 16:
        plans = [masked_matmul_triton.plan(to_torch(m)) for m in masks]
        found["Triton"] = lambda: evented(
            functools.partial(masked_matmul_triton.product, block=block),
            [(to_torch(x), to_torch(b), p) for x, p in zip(a, plans, strict=True)],
        )
    if bcoo:
        left = [jax_sparse.BCOO.fromdense(x) for x in kept[:1]]
        found["BCOO"] = lambda: chained(lambda x, y: x @ y, [(x, b) for x in left])
    return found


def expand(mask: jax.Array, block: tuple[int, int], shape: tuple[int, ...]) -> jax.Array:
    """A mask of blocks as one of entries."""
    wide = jnp.repeat(jnp.repeat(mask, block[0], 0), block[1], 1)
    return wide[: shape[0], : shape[1]]


def measure(n: int, dtype: str, block: tuple[int, int], sparsity: float, bcoo: bool):
    """(name -> us, names of the sides whose result is wrong)."""
    rng = np.random.default_rng(0)
    shape = (-(-n // block[0]), -(-n // block[1]))
    masks = [jnp.asarray(rng.random(shape) >= sparsity) for _ in range(CALLS)]
    keys = jax.random.split(jax.random.key(0), CALLS + 1)
    a = [jax.random.normal(key, (n, n), dtype) for key in keys[1:]]
    b = jax.random.normal(keys[0], (n, n), dtype) / n**0.5
    left = a[0] * expand(masks[0], block, (n, n)).astype(dtype)
    want = jnp.matmul(left.astype(jnp.float32), b.astype(jnp.float32), precision="highest")
    times, wrong = {}, []
    for name, side in sides(a, b, masks, block, bcoo).items():
        times[name], got = side()
        if name == "convert":
            continue
        value = jnp.from_dlpack(got) if isinstance(got, torch.Tensor) else got
        right = want[:, : value.shape[1]]
        error = jnp.abs(value.astype(jnp.float32) - right).max() / jnp.abs(right).max()
        if not error <= BOUND[dtype]:
            wrong.append(f"{name} ({float(error):.1e})")
    return times, wrong


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--dtype", nargs="+", default=list(BOUND), choices=list(BOUND))
    parser.add_argument("--block", nargs="+", default=["32x64", "32x1", "1x64"])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.5, 0.7, 0.9, 0.95, 0.99])
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    parser.add_argument("--no-bcoo", action="store_true")
    given = parser.parse_args()
    start, status = time.monotonic(), 0
    for dtype in given.dtype:
        for name in given.block:
            for sparsity in given.sparsity:
                if time.monotonic() - start > given.seconds:
                    return status
                rows, columns = map(int, name.split("x"))
                bcoo = not given.no_bcoo and sparsity >= BCOO_FROM and dtype == "float32"
                times, wrong = measure(given.size, dtype, (rows, columns), sparsity, bcoo)
                shown = ", ".join(f"{side} {us:.0f}" for side, us in times.items())
                print(f"{dtype} {name} {sparsity:g}: {shown}", *wrong, flush=True)
                status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main())
