"""Grouped products on an NVIDIA GPU beside torch's, in turns, in one run.

    python benchmarks/grouped_matmul/rivals.py [--case 4096x768x3072x8 ...] \\
        [--what product ...] [--ragged]

A case is sorted rows x depth x outputs x experts, bfloat16, the sizes of random assignments.
"product": contiguous rows. "fused": rows gathered, two of each token, weighted and added up; torch
has three steps for it (index, product and weights, index and sum). "drhs": the weights' gradient.
Microseconds of GPU time a call over distinct inputs, medians of 9 rounds; a round is a chain of
ours and then as many calls of torch's, between CUDA events while the host is ahead. "cuBLAS" is a
dense product of the same FLOPs, by torch. `--ragged`: a chain of `jax.lax.ragged_dot` too. Exit
status 1 where the results of a call differ.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock

CASES = ("4096x768x3072x8", "4096x768x3072x64", "4096x768x3072x128", "8192x4096x14336x8")
CALLS, ROUNDS, BOUND = 8, 9, 2e-2
Way = Callable[[int], Any]
Traced = Callable[[Any, Any, Any], jax.Array]


def to_torch(value: jax.Array) -> torch.Tensor:
    """The same memory as a torch tensor."""
    return torch.from_dlpack(value)


def normal(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Random bfloat16 numbers, made on the device."""
    make = jax.jit(lambda key: jax.random.normal(key, shape, jnp.bfloat16) * jnp.bfloat16(scale))
    return make(jax.random.key(seed))


class Case:
    """The inputs of one case, and both ways of its three products."""

    def __init__(self, rows: int, depth: int, outputs: int, experts: int):
        rng = np.random.default_rng(0)
        large = rows * depth * outputs > 2e11
        self.calls = 2 if large else CALLS
        sets = 1 if large else 4 if experts <= 8 else 2
        sizes = np.bincount(rng.integers(0, experts, rows), minlength=experts)
        self.sizes = jnp.asarray(sizes, jnp.int32)
        order = rng.permutation(rows)
        self.rows_of = jnp.asarray(order // 2, jnp.int32)
        self.weights = jnp.asarray(rng.random(rows, np.float32))
        self.x = [normal(i, (rows, depth)) for i in range(self.calls)]
        self.w = [normal(100 + i, (experts, depth, outputs), depth**-0.5) for i in range(sets)]
        self.gy = [normal(200 + i, (rows, outputs)) for i in range(sets)]
        self.ends = torch.tensor(np.cumsum(sizes), dtype=torch.int32, device="cuda")
        self.place = torch.tensor(np.argsort(order), device="cuda")
        self.tokens = rows // 2

    def _product(self, multiply: Any, x: Any, w: Any, **given: Any) -> jax.Array:
        return multiply(x, w, self.sizes, **given)

    def ragged(self, what: str) -> Traced:
        """The same by `jax.lax.ragged_dot`."""
        product = functools.partial(self._product, jax.lax.ragged_dot)

        def fused(x: Any, w: Any, _: Any) -> jax.Array:
            y = product(x[: self.tokens][self.rows_of], w).astype(jnp.float32)
            sums = jnp.zeros((self.tokens, y.shape[1]), jnp.float32)
            return sums.at[self.rows_of].add(y * self.weights[:, None]).astype(x.dtype)

        def drhs(x: Any, w: Any, gy: Any) -> jax.Array:
            return jax.vjp(lambda w: product(x, w), w)[1](gy)[0]

        return {"product": lambda x, w, _: product(x, w), "fused": fused, "drhs": drhs}[what]

    def ours(self, what: str) -> Traced:
        """A function (rows, weights of the experts, cotangent)."""

        product = functools.partial(self._product, js.grouped_matmul, implementation="cuda")

        def fused(x: Any, w: Any, _: Any) -> jax.Array:
            moved = {"gather": self.rows_of, "scatter": self.rows_of, "num_rows": self.tokens}
            given = {"row_weights": self.weights, "implementation": "cuda", **moved}
            return js.grouped_matmul(x[: self.tokens], w, self.sizes, **given)

        def drhs(x: Any, w: Any, gy: Any) -> jax.Array:
            return jax.vjp(lambda w: product(x, w), w)[1](gy)[0]

        return {"product": lambda x, w, _: product(x, w), "fused": fused, "drhs": drhs}[what]

    def theirs(self, what: str) -> Way:
        """A function of the number of a call."""
        multiply = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        x, w, gy = ([to_torch(v) for v in values] for values in (self.x, self.w, self.gy))
        rows_of, weights = to_torch(self.rows_of).long(), to_torch(self.weights)[:, None].bfloat16()

        def product(i: int) -> Any:
            return multiply(x[i], w[i % len(w)], offs=self.ends)

        def fused(i: int) -> Any:
            gathered = x[i][: self.tokens].index_select(0, rows_of)
            y = multiply(gathered, w[i % len(w)], offs=self.ends) * weights
            return y.index_select(0, self.place).view(self.tokens, 2, -1).sum(1)

        def drhs(i: int) -> Any:
            return multiply(x[i].t(), gy[i % len(gy)], offs=self.ends)

        return {"product": product, "fused": fused, "drhs": drhs}[what]

    def dense(self, what: str) -> Way:
        """One dense product of the same FLOPs, of "product" and "drhs"."""
        x, w, gy = ([to_torch(v) for v in values] for values in (self.x, self.w, self.gy))
        if what == "product":
            return lambda i: x[i] @ w[i % len(w)][0]
        return lambda i: x[i].t() @ gy[i % len(gy)]


def chained(one: Traced, clock: GpuClock) -> Callable[..., list[jax.Array]]:
    """Jitted calls of `one` on each of the rows, between the clock's events."""

    def chain(x: Any, w: Any, gy: Any) -> list[jax.Array]:
        leaves = clock.start([*x, *w, *gy])
        x, w, gy = leaves[: len(x)], leaves[len(x) : len(x) + len(w)], leaves[len(x) + len(w) :]
        sets = range(len(x))
        return clock.stop([one(x[i], w[i % len(w)], gy[i % len(gy)]) for i in sets])

    return jax.jit(chain)


def compare(case: Case, what: str, clock: GpuClock, ragged: bool) -> tuple[dict[str, float], float]:
    """(microseconds by side, ours first; the largest difference over the largest value)."""
    chains = {"jaxsparse": chained(case.ours(what), clock)}
    if ragged:
        chains["ragged_dot"] = chained(case.ragged(what), clock)
    ways = {"torch": case.theirs(what)}
    if what != "fused":
        ways["cuBLAS"] = case.dense(what)
    got = [jax.block_until_ready(run(case.x, case.w, case.gy))[0] for run in chains.values()]
    want = jnp.from_dlpack(ways["torch"](0)).astype(jnp.float32)
    errors = [jnp.abs(one.astype(jnp.float32) - want).max() for one in got]
    error = float(max(errors) / jnp.abs(want).max())
    del got, want
    stream = torch.cuda.current_stream().cuda_stream
    took: dict[str, list[float]] = {name: [] for name in (*chains, *ways)}
    for _ in range(ROUNDS):
        for name, run in chains.items():
            jax.block_until_ready(run(case.x, case.w, case.gy))
            took[name].append(clock.microseconds() / case.calls)
        for name, way in ways.items():
            torch.cuda.synchronize()
            clock.begin(stream)
            for i in range(case.calls):
                way(i)
            clock.end(stream)
            took[name].append(clock.microseconds() / case.calls)
    return {name: float(np.median(us[1:])) for name, us in took.items()}, error


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", default=CASES)
    parser.add_argument("--what", nargs="+", default=("product", "fused", "drhs"))
    parser.add_argument("--ragged", action="store_true")
    given = parser.parse_args()
    clock, status = GpuClock(hold_us=1000), 0
    for name in given.case:
        rows, depth, outputs, experts = (int(n) for n in name.split("x"))
        case = Case(rows, depth, outputs, experts)
        for what in given.what:
            took, error = compare(case, what, clock, given.ragged)
            wrong = "" if error <= BOUND else f" DIFFERS by {error:.1e}"
            status |= bool(wrong)
            ours = took["jaxsparse"]
            shown = ", ".join(f"{side} {us:.1f} ({us / ours:.2f}x)" for side, us in took.items())
            print(f"{name}, {what}: {shown}{wrong}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
