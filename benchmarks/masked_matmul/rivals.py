"""Masked products on an NVIDIA GPU against other ways of multiplying a sparse matrix, in one run.

    python benchmarks/masked_matmul/rivals.py [--size 4096] [--dtype bfloat16 float32]
        [--block 32x64 32x1 1x64] [--sparsity 0.5 0.9 0.95] [--only NAME ...] [--variant NAME ...]

A random mask on the left operand. Microseconds of GPU time a call over distinct inputs, between
CUDA events while the host is ahead: of a jitted chain for JAX's sides (packing the mask, the index
and the packing of pieces are part of ours), of eager calls for torch's and cupy's, which are given
a matrix that is already converted. "convert" is what torch's `to_sparse_csr` takes. Every output is
checked against float32 products at "highest". Exit status 1 when an output was wrong.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import triton_product
from jax.experimental import sparse as jax_sparse

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock

CALLS, ROUNDS = 6, 7
BOUND = {"bfloat16": 2e-2, "float32": 4e-3}
BCOO_FROM = 0.99
SIDES = ("ours", "dense", "cuSPARSE", "convert", "Triton", "BCOO")
Measured = tuple[float, Any]


@functools.cache
def clock() -> GpuClock:
    """The pair of events of all sides."""
    return GpuClock()


@functools.cache
def chain_of(function: Callable[..., Any]) -> Any:
    """A jitted chain of calls of a function, between events."""

    def chain(inputs: list[Any]) -> list[Any]:
        leaves, tree = jax.tree.flatten(inputs)
        inputs = jax.tree.unflatten(tree, clock().start(leaves))
        return clock().stop([function(*each) for each in inputs])

    return jax.jit(chain)


def chained(function: Callable[..., Any], inputs: list[Any]) -> Measured:
    """Microseconds a call of a jitted chain, and the first result."""
    run, took = chain_of(function), []
    out = jax.block_until_ready(run(inputs))
    for _ in range(ROUNDS):
        out = None
        out = jax.block_until_ready(run(inputs))
        took.append(clock().microseconds() / len(inputs))
    return float(np.median(took)), out[0] if out else None


def evented(function: Callable[..., Any], inputs: list[Any]) -> Measured:
    """As `chained`, for eager calls on torch's stream."""
    first, took = function(*inputs[0]), []
    stream = torch.cuda.current_stream().cuda_stream
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        clock().begin(stream)
        for each in inputs:
            function(*each)
        clock().end(stream)
        took.append(clock().microseconds() / len(inputs))
    return float(np.median(took)), first


def to_torch(value: jax.Array) -> torch.Tensor:
    """The same memory as a torch tensor."""
    return torch.from_dlpack(value)


def cusparse(a: torch.Tensor, b: torch.Tensor) -> Measured:
    """cuSPARSE's CSR product in float32, through cupy."""
    import cupy
    from cupyx.scipy import sparse

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        left = sparse.csr_matrix(cupy.from_dlpack(a.float()))
        right = cupy.asfortranarray(cupy.from_dlpack(b.float()))
        us, y = evented(lambda x: left @ x, [(right,)] * 3)
        return us, torch.from_dlpack(cupy.ascontiguousarray(y))


@functools.cache
def ours(block: tuple[int, int], variant: str | None) -> Callable[..., Any]:
    """(a, b, mask) -> the product, by the default or by a variant."""

    def run(a: jax.Array, b: jax.Array, mask: jax.Array) -> jax.Array:
        with js.config(variant=variant):
            return js.masked_matmul(a, b, a_mask=mask, granularity=block, implementation="cuda")

    return run


def sides(
    a: list[jax.Array], b: jax.Array, masks: list[jax.Array], block: tuple[int, int], names: Any
) -> dict[str, Callable[[], Measured]]:
    """Name -> a function that measures: (us, the first result). `names`: of SIDES, or variants."""
    kept = [x * expand(m, block, x.shape).astype(x.dtype) for x, m in zip(a, masks, strict=True)]
    given = [(x, b, m) for x, m in zip(a, masks, strict=True)]

    def by_triton() -> Measured:
        plans = [triton_product.plan(to_torch(m)) for m in masks]
        product = functools.partial(triton_product.product, block=block)
        inputs = zip(a, plans, strict=True)
        return evented(product, [(to_torch(x), to_torch(b), p) for x, p in inputs])

    def by_bcoo() -> Measured:
        left = jax_sparse.BCOO.fromdense(kept[0])
        return chained(_product, [(left, b)])

    found = {
        "ours": lambda: chained(ours(block, None), given),
        "dense": lambda: chained(jnp.matmul, [(x, b) for x in kept]),
        "cuSPARSE": lambda: cusparse(to_torch(kept[0]), to_torch(b)),
        "convert": lambda: evented(lambda x: x.to_sparse_csr(), [(to_torch(x),) for x in kept[:2]]),
        "Triton": by_triton,
        "BCOO": by_bcoo,
    }
    for name in names:
        if name not in found:
            found[name] = functools.partial(chained, ours(block, name), given)
    return {name: found[name] for name in names}


def _product(x: Any, y: Any) -> Any:
    return x @ y


def expand(mask: jax.Array, block: tuple[int, int], shape: tuple[int, ...]) -> jax.Array:
    """A mask of blocks as one of entries."""
    wide = jnp.repeat(jnp.repeat(mask, block[0], 0), block[1], 1)
    return wide[: shape[0], : shape[1]]


def measure(n: int, dtype: str, block: tuple[int, int], sparsity: float, names: Any):
    """(name -> us, what went wrong)."""
    rng = np.random.default_rng(0)
    shape = (-(-n // block[0]), -(-n // block[1]))
    masks = [jnp.asarray(rng.random(shape) >= sparsity) for _ in range(CALLS)]
    keys = jax.random.split(jax.random.key(0), CALLS + 1)
    a = [jax.random.normal(key, (n, n), dtype) for key in keys[1:]]
    b = jax.random.normal(keys[0], (n, n), dtype) / n**0.5
    left = a[0] * expand(masks[0], block, (n, n)).astype(dtype)
    want = jnp.matmul(left.astype(jnp.float32), b.astype(jnp.float32), precision="highest")
    times, wrong = {}, []
    for name, side in sides(a, b, masks, block, names).items():
        times[name], got = side()
        if name == "convert":
            continue
        value = jnp.from_dlpack(got) if isinstance(got, torch.Tensor) else got
        error = jnp.abs(value.astype(jnp.float32) - want).max() / jnp.abs(want).max()
        if not error <= BOUND[dtype]:
            wrong.append(f"{name} is wrong ({float(error):.1e})")
    return times, wrong


def takes(name: str, dtype: str, block: tuple[int, int], sparsity: float) -> bool:
    """Whether a side is measured in a case."""
    if name == "Triton":
        return min(block) >= 16
    if name == "BCOO":
        return sparsity >= BCOO_FROM and dtype == "float32"
    pieces, boxes = block[0] % 32 == 0, block[1] % 64 == 0
    if name == "sorted":
        return pieces and not boxes
    return name not in ("pieces", "panels") or (pieces and boxes)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--dtype", nargs="+", default=list(BOUND), choices=list(BOUND))
    parser.add_argument("--block", nargs="+", default=["32x64", "32x1", "1x64"])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.5, 0.7, 0.9, 0.95, 0.99])
    parser.add_argument("--only", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--variant", nargs="+", default=[], help="variants of ours to time too")
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    given = parser.parse_args()
    start, status = time.monotonic(), 0
    for dtype in given.dtype:
        for name in given.block:
            block = (int(name.split("x")[0]), int(name.split("x")[1]))
            for sparsity in given.sparsity:
                if time.monotonic() - start > given.seconds:
                    return status
                names = [
                    n for n in [*given.only, *given.variant] if takes(n, dtype, block, sparsity)
                ]
                times, wrong = measure(given.size, dtype, block, sparsity, names)
                shown = ", ".join(f"{side} {us:.1f}" for side, us in times.items())
                print(f"{dtype} {name} {sparsity:g}: {shown}", *wrong, flush=True)
                status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main())
