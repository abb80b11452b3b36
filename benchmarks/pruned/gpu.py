"""Pruned products on CUDA against XLA's dense ones: 20 layer shapes, batch 8 and 64, in one run.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/gpu.py [--sparsity 0.9 0.95] [--batch 1 8 64]
                       [--executor default code rows] [--shapes 1 2 3] [--jobs 12] [--wall]
                       [--dense highest tf32] [--cusparse] [--seconds 600]

Sizes 1 to 10 are those of layers of ResNet-50: their patterns are those of the DLMC where
JAXSPARSE_DATA is set, random elsewhere. Prints microseconds a call of GPU time in a jitted chain of
ten calls on distinct inputs (events in XLA's stream, which is held while the host catches up), the
speed-ups over the dense product at "highest" and at the default precision (TF32), and the geometric
means; "default" is what runs when no executor is demanded, its name follows. --wall: the wall time
of a call in such a chain, too. Before anything is timed all functions are compiled, `jobs` at a
time, the dense ones first (nothing else computes while XLA tunes them); then those of frozen
weights are called once, as many at a time: assembling takes seconds. --cusparse, where cupy is
installed: cuSPARSE (CSR, the faster of two layouts of x), by events. The last rows of
the first and the last result of every timed chain are checked against float64. Exit status 1 when
one was wrong.
"""

import argparse
import contextlib
import dataclasses
import functools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from cases import LAYERS, layer_of, random_mask

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import ranked

# Outputs, inputs, positions of an image (or tokens of a sequence).
SHAPES = (
    *((64, 256, 3136), (256, 64, 3136), (128, 512, 784), (512, 128, 784), (256, 1024, 196)),
    *((1024, 256, 196), (512, 2048, 49), (2048, 512, 49), (2048, 512, 256), (512, 2048, 256)),
    *((512, 512, 256), (64, 32, 12544), (128, 64, 3136), (128, 128, 3136), (256, 128, 784)),
    *((256, 256, 784), (512, 256, 196), (512, 512, 196), (1024, 512, 49), (1024, 1024, 49)),
)
CALLS, SAMPLES = 10, 5
CHECKED = 512  # rows of the first and of the last result, against float64
DENSE = {"highest": "highest", "tf32": None}


class Chains:
    """Ten calls of a product on ten inputs and ten weights (equal ones: XLA would merge dense calls
    that share theirs), jitted: with the clock around them, and without.
    """

    def __init__(self, clock: GpuClock, product: Any):
        self._clock = clock
        self._jitted = jax.jit(
            lambda xs, ws: clock.stop(list(map(product, clock.start(list(xs)), ws)))
        )
        self._compiled: dict[Any, Any] = {}
        self.plain = jax.jit(lambda xs, ws: list(map(product, xs, ws)))

    def compile(self, xs, ws) -> None:
        """Compile for arrays, or ShapeDtypeStructs, of these shapes; computes nothing."""
        key = xs[0].shape, None if ws[0] is None else ws[0].shape
        if key not in self._compiled:
            self._compiled[key] = self._jitted.lower(xs, ws).compile()

    def _timed(self, xs, ws) -> list[jax.Array]:
        self.compile(xs, ws)
        return self._compiled[xs[0].shape, None if ws[0] is None else ws[0].shape](xs, ws)

    def gpu(self, xs, ws) -> float:
        """Microseconds a call on the GPU: the median of some chains."""
        took = []
        for turn in range(SAMPLES + 1):
            jax.block_until_ready(self._timed(xs, ws))
            if turn:
                took.append(self._clock.microseconds() / CALLS)
        return float(np.median(took))

    def wall(self, xs, ws) -> float:
        """Microseconds a call as the host sees it: the median of some chains."""
        jax.block_until_ready(self.plain(xs, ws))
        took = []
        for _ in range(SAMPLES):
            start = time.perf_counter()
            jax.block_until_ready(self.plain(xs, ws))
            took.append((time.perf_counter() - start) / CALLS * 1e6)
        return float(np.median(took))

    def once(self, xs, ws) -> list[jax.Array]:
        """The results of a timed chain."""
        return self._timed(xs, ws)


@dataclasses.dataclass(frozen=True)
class Case:
    """A shape of the table at a batch and a sparsity."""

    number: int
    batch: int
    sparsity: float

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows of x, inputs, outputs."""
        n, k, positions = SHAPES[self.number - 1]
        return positions * self.batch, k, n

    def shapes(self) -> tuple[list[Any], list[Any]]:
        """Of ten inputs, and of ten dense weights."""
        m, k, n = self.size
        xs, ws = ([jax.ShapeDtypeStruct(s, jnp.float32)] * CALLS for s in ((m, k), (k, n)))
        return xs, ws


@functools.lru_cache(maxsize=1)
def inputs_of(m: int, k: int) -> list[jax.Array]:
    """Ten."""
    return [jax.random.normal(key, (m, k)) for key in jax.random.split(jax.random.key(0), CALLS)]


@functools.cache
def weight_of(number, sparsity):
    """float32[inputs, outputs] with a real pattern where there is one."""
    n, k, _ = SHAPES[number - 1]
    name = next((name for name, size, _ in LAYERS if size == (n, k)), None)
    if name is not None:
        return layer_of(name, (n, k), sparsity)[0].astype(np.float32)
    weight = np.random.default_rng(0).standard_normal((k, n), np.float32)
    return np.where(random_mask((k, n), sparsity, 0), weight, 0).astype(np.float32)


@functools.cache
def plan_of(number, sparsity):
    """The weight, inspected."""
    return js.pruned.inspect(weight_of(number, sparsity))


def default_name(case: Case) -> str:
    """The executor that runs when none is demanded."""
    m, k, _ = case.size
    pattern = plan_of(case.number, case.sparsity).pattern
    return ranked(Problem(pattern, "cuda", (m, k), "float32", "float32", "highest"))[0]


def sparse_chains(clock: GpuClock, case: Case, executor: str) -> Chains:
    """The chains of an executor."""
    plan = plan_of(case.number, case.sparsity)

    def multiply(x, w):
        with js.config(variant=None if executor == "default" else executor):
            return js.pruned_matmul(x, plan, implementation="cuda", precision="highest")

    return Chains(clock, multiply)


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


def measure(case: Case, sides: dict[str, Chains], given) -> tuple[dict[str, float], list[str]]:
    """(name -> us, what is wrong)."""
    w, xs = weight_of(case.number, case.sparsity), inputs_of(*case.size[:2])
    ws, times, wrong = [jnp.array(w) for _ in xs], {}, []
    want = np.concatenate([xs[i][-CHECKED:] for i in (0, -1)]).astype(np.float64) @ w
    for name, chains in sides.items():
        given_ws = ws if name in DENSE else [None] * CALLS
        times[name] = chains.gpu(xs, given_ws)
        if given.wall:
            times[f"{name} wall"] = chains.wall(xs, given_ws)
        ys = chains.once(xs, given_ws)
        error = np.abs(np.concatenate([ys[i][-CHECKED:] for i in (0, -1)]) - want)
        if not error.max() <= (2e-2 if name == "tf32" else 1e-4) * np.abs(want).max():
            wrong.append(f"{name} WRONG by {error.max() / np.abs(want).max():.1e}")
    if given.cusparse and (took := cusparse(w, case.size[0])) is not None:
        times["cusparse"] = took
    return times, wrong


def prepare(
    clock: GpuClock, dense: dict[str, Chains], cases: list[Case], given
) -> dict[Case, dict[str, Chains]]:
    """The executors' chains of each case, called once; one that cannot run is left out. Those of
    the dense products are compiled.
    """

    def compiled(case: Case, executor: str):
        chains = sparse_chains(clock, case, executor)
        try:
            chains.compile(case.shapes()[0], [None] * CALLS)
        except ValueError as error:
            return f"{case} {executor}: {error}"
        return chains

    def first(case: Case, chains: Chains):
        x = jnp.zeros(case.size[:2])
        jax.block_until_ready(chains.once([x] * CALLS, [None] * CALLS))

    found: dict[Case, dict[str, Chains]] = {case: {} for case in cases}
    start = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        sizes = {case.size: case.shapes() for case in cases}
        list(pool.map(lambda job: job[0].compile(*job[1]), product(dense.values(), sizes.values())))
        print(f"  dense compiled after {time.monotonic() - start:.0f} s", flush=True)
        jobs = [
            (case, executor, pool.submit(compiled, case, executor))
            for case in cases
            for executor in given.executor
            if executor != "default" or default_name(case) != "dense"
        ]
        for case, executor, job in jobs:
            if isinstance(result := job.result(), Chains):
                found[case][executor] = result
            else:
                print(f"  {result}")
        print(f"  sparse compiled after {time.monotonic() - start:.0f} s", flush=True)
        ready = [(case, chains) for case in cases for chains in found[case].values()]
        list(pool.map(lambda job: first(*job), ready))
    return found


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.95])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--executor", nargs="+", default=["default"])
    parser.add_argument("--shapes", type=int, nargs="+", default=list(range(1, len(SHAPES) + 1)))
    parser.add_argument("--jobs", type=int, default=12, help="first calls at a time")
    parser.add_argument("--dense", nargs="+", default=list(DENSE), choices=list(DENSE))
    parser.add_argument("--wall", action="store_true", help="also the wall time of a call")
    parser.add_argument("--cusparse", action="store_true", help="also cuSPARSE, by cupy")
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    given = parser.parse_args()
    start, correct = time.monotonic(), True
    clock = GpuClock()
    dense = {
        name: Chains(clock, functools.partial(jnp.matmul, precision=precision))
        for name, precision in DENSE.items()
        if name in given.dense
    }
    ratios: dict[tuple[Any, ...], list[float]] = {}
    for batch in given.batch:
        cases = [Case(n, batch, s) for n in given.shapes for s in given.sparsity]
        sparse = prepare(clock, dense, cases, given)
        print(f"batch {batch}: first calls over at {time.monotonic() - start:.0f} s", flush=True)
        for case in cases:
            if time.monotonic() - start > given.seconds:
                break
            times, wrong = measure(case, dense | sparse[case], given)
            correct &= not wrong
            shown = []
            for name in given.executor:
                took = times.get(name, times["highest"])  # dense by default: the same product
                rivals = [rival for rival in (*DENSE, "cusparse") if rival in times]
                for rival in rivals:
                    key = case.sparsity, case.batch, name, rival
                    ratios.setdefault(key, []).append(times[rival] / took)
                shown.append(" ".join([name, *(f"{times[r] / took:.2f}x {r}" for r in rivals)]))
            us = " ".join(f"{name} {t:.1f}" for name, t in times.items())
            label = f"{case.sparsity:g} batch {case.batch} #{case.number} ({default_name(case)})"
            print(f"{label}: {us} us; {'; '.join([*shown, *wrong])}", flush=True)
    for (sparsity, batch, name, rival), found in ratios.items():
        mean = float(np.exp(np.mean(np.log(found))))
        print(
            f"{sparsity:g} batch {batch} {name}: geometric mean {mean:.2f}x {rival}, least "
            f"{min(found):.2f}x, {len(found)} shapes"
        )
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
