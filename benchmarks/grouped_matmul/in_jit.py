"""The tables of benchmarks/results/products/{grouped_matmul,moe}_<device>.md that are taken inside
jitted programs: chains of calls, and mixtures of experts whose ways are all compiled first, on
threads, and whose GPU time is taken.

    python benchmarks/grouped_matmul/in_jit.py grouped=4096x768x3072x8 route layers \\
        moe=switch_b8_e64@60

`jaxsparse bench grouped_matmul` and `jaxsparse bench moe` check every output and time one way after
the other; this is for many large cases. `grouped`: rows x depth x outputs x experts. `moe`: cases
of `jaxsparse.testing`, the seconds in which compiling may start, and after a slash the ways (all of
them: jaxsparse, padded, serial, scan, ragged_dot): what has not begun then is left out, and nothing
is timed before all that began is done. A serial loop of few experts is unrolled and compiled
without autotuning, for each of its products has a shape of its own; "scan" is the loop that many
experts have.
"""

import functools
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.products import moe as bench
from jaxsparse.nn import moe
from jaxsparse.testing.product_cases import MOE_CASES

KIND = np.dtype(jnp.bfloat16)
LAYERS = ((8192, 2048, 768, 128, 8), (16384, 2560, 1280, 64, 4))


def wall(run: Callable[[], Any], calls: int, rounds: int = 5) -> float:
    """Median microseconds a call of `calls` calls."""
    jax.block_until_ready(run())
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append((time.perf_counter() - start) / calls * 1e6)
    return sorted(times)[rounds // 2]


@functools.partial(jax.jit, static_argnums=(1, 2))
def normal(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Random numbers, made on the device."""
    return jax.random.normal(jax.random.key(seed), shape, KIND) * jnp.asarray(scale, KIND)


def grouped(rows: int, depth: int, outputs: int, experts: int) -> None:
    """The product, with gather, weights and combine, and the weights' gradient."""
    rng = np.random.default_rng(0)
    sizes = jnp.asarray(np.bincount(rng.integers(0, experts, rows), minlength=experts), jnp.int32)
    tokens = rows // 2
    rows_of = jnp.asarray(rng.permutation(rows) // 2, jnp.int32)
    weights = jnp.asarray(rng.random(rows, np.float32))
    large = rows * depth * outputs > 2e11
    calls, sets = (4, 1) if large else (8, 4 if experts <= 8 else 2)
    lhs = [normal(i, (rows, depth)) for i in range(calls)]
    rhs = [normal(100 + i, (experts, depth, outputs), depth**-0.5) for i in range(sets)]
    gy = [normal(200 + i, (rows, outputs)) for i in range(sets)]
    ours = functools.partial(js.grouped_matmul, group_sizes=sizes, implementation="cuda")
    ragged = functools.partial(jax.lax.ragged_dot, group_sizes=sizes)

    def fused(x: jax.Array, w: jax.Array, _: jax.Array) -> jax.Array:
        moved = {"gather": rows_of, "scatter": rows_of, "num_rows": tokens}
        return ours(x[:tokens], w, row_weights=weights, **moved)

    def three_steps(x: jax.Array, w: jax.Array, _: jax.Array) -> jax.Array:
        y = ragged(x[:tokens][rows_of], w).astype(jnp.float32) * weights[:, None]
        return jnp.zeros((tokens, outputs), jnp.float32).at[rows_of].add(y).astype(KIND)

    def drhs(product: Any, x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda w: product(x, w), w)[1](g)[0]

    ways: dict[str, tuple[Any, int]] = {
        "product": (lambda x, w, _: ours(x, w), calls),
        "product, ragged_dot": (lambda x, w, _: ragged(x, w), 2),
        "fused": (fused, calls),
        "fused, ragged_dot": (three_steps, 2),
        "drhs": (functools.partial(drhs, ours), 2),
        "drhs, ragged_dot": (functools.partial(drhs, ragged), 2),
        "dense, same FLOPs": (lambda x, w, _: x @ w[0], calls),
    }
    for name, (way, n) in ways.items():
        if large and name in ("fused, ragged_dot", "drhs, ragged_dot"):
            continue
        one: Any = jax.jit(way).lower(lhs[0], rhs[0], gy[0]).compile().memory_analysis()
        known = one.argument_size_in_bytes + one.output_size_in_bytes
        chain = jax.jit(
            lambda lhs, rhs, gy, way=way, n=n: [
                way(lhs[i], rhs[i % sets], gy[i % sets]) for i in range(n)
            ]
        )
        us = wall(functools.partial(chain, lhs, rhs, gy), n)
        temp = one.temp_size_in_bytes
        shape = f"{rows} rows, {depth} -> {outputs}, E={experts}"
        memory = f"temp {temp / 1e6:.1f} MB, {temp / known:.2f} of in + out"
        print(f"{shape}, {name}: {us:.1f} us, {memory}", flush=True)


def route() -> None:
    """262144 assignments, six lists in one program."""
    for experts in (64, 128, 256):
        ids = [
            jnp.asarray(np.random.default_rng(i).integers(0, experts, (32768, 8)), jnp.int32)
            for i in range(6)
        ]
        run = jax.jit(
            lambda ids, n=experts: [tuple(js.route(i, n, implementation="cuda")) for i in ids]
        )
        for _ in range(6):  # also as a recorded graph, with fresh addresses
            for one, got in zip(ids, run([i + 0 for i in ids]), strict=True):
                want = np.argsort(np.asarray(one).reshape(-1), kind="stable")
                np.testing.assert_array_equal(got[0], want)
        print(f"route, {experts} experts: {wall(functools.partial(run, ids), 6, 9):.1f} us")


def layers() -> None:
    """The two large SwiGLU layers, routing included."""
    for tokens, d, hidden, experts, top_k in LAYERS:
        options = moe.Options(top_k, "swiglu")
        into = (experts, d, hidden)
        p = {
            "router": normal(0, (d, experts), 0.05).astype(jnp.float32),
            "gate": normal(1, into, 0.02),
            "up": normal(2, into, 0.02),
            "down": normal(3, (experts, hidden, d), 0.02),
        }
        xs = [normal(10 + i, (tokens, d)) for i in range(10)]
        one = functools.partial(moe.run, mask=None, options=options)
        run = jax.jit(lambda xs, p, one=one: [one(x, p)[0] for x in xs])
        us = wall(functools.partial(run, xs, p), 10, 7)
        print(f"MoE T={tokens} d={d} hidden={hidden} E={experts} top{top_k}: {us:.1f} us")


def mixtures(names: list[str], seconds: float, only: list[str]) -> None:
    """Mixtures of experts against a padded batch, ragged_dot and a serial loop: GPU time from the
    first kernel to the last.
    """
    exact, clock = jax.lax.Precision.DEFAULT, GpuClock(hold_us=2000)
    pool = ThreadPoolExecutor(14)
    todo: dict[tuple[str, str, str], Callable[[], Any]] = {}
    jobs: dict[tuple[str, str, str], Future] = {}
    drawn: dict[str, Any] = {}
    start = time.monotonic()
    for name in names:
        case = MOE_CASES[name]
        p = bench.make_operands(case, KIND)
        first = bench.normal((case.tokens, case.d), KIND, 10)
        xs = [first * jnp.asarray(2.0**-i, KIND) for i in range(8)]
        sizes = bench.routed_sizes(case, first, p)
        drawn[name] = (p, xs, sizes)
        by_rows = functools.partial(bench.by_rows, case)
        ways: dict[str, Any] = {
            "jaxsparse": lambda i, x, p, c=case: bench.ours(c, x, p, exact, None),
            "padded": functools.partial(_rows, by_rows, bench.padded(max(sizes), exact)),
            "serial": functools.partial(_rows, by_rows, bench.one_by_one(sizes, exact)),
            "scan": functools.partial(_rows, by_rows, bench.scanned(max(sizes), exact)),
            "ragged_dot": functools.partial(_rows, by_rows, bench.ragged(exact)),
        }
        for way, layer in ways.items():
            if only and way not in only:
                continue
            unrolled = way == "serial" and case.experts < bench.UNROLLED_EXPERTS
            options = {"xla_gpu_autotune_level": "0"} if unrolled else None
            for what in bench.WHATS:
                run = jax.jit(functools.partial(_timed, clock, what, layer))
                todo[name, what, way] = functools.partial(_compile, run, options, xs[0], p)
    for key in sorted(todo, key=lambda key: key[2] == "ragged_dot"):
        jobs[key] = pool.submit(todo[key])
    wait(jobs.values(), timeout=seconds)
    pool.shutdown(cancel_futures=True)
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    for name, (p, xs, sizes) in drawn.items():
        for what in bench.WHATS:
            mine = {way: job for (n, w, way), job in jobs.items() if (n, w) == (name, what)}
            runs = {way: job.result() for way, job in mine.items() if not job.cancelled()}
            if not runs:
                continue
            error = _disagreement([run(xs[0], p) for run in runs.values()])
            print(f"{name}, rows {min(sizes)} to {max(sizes)}, {what}: differ by {error:.1e}")
            for way, run in runs.items():
                us = []
                for x in xs:
                    jax.block_until_ready(run(x, p))
                    us.append(clock.microseconds())
                temp = run.memory_analysis().temp_size_in_bytes / 1e6
                print(f"    {way}: {sorted(us)[4]:.0f} us, temp {temp:.1f} MB", flush=True)
        drawn[name] = ({}, [], sizes)


def _timed(clock: GpuClock, what: str, layer: Any, x: jax.Array, p: Any) -> Any:
    """One call between the clock's events."""
    leaves, tree = jax.tree.flatten(bench.call(what, layer, 0, clock.start([x])[0], p))
    return jax.tree.unflatten(tree, clock.stop(leaves))


def _disagreement(outputs: list[Any]) -> float:
    """The largest difference to the first of them, in the 2-norm, relative, leaf by leaf."""
    first, *others = (jax.tree.leaves(v) for v in outputs)
    worst = 0.0
    for other in others:
        for a, b in zip(first, other, strict=True):
            worst = max(worst, float(_distance(a, b)))
    return worst


@jax.jit
def _distance(a: jax.Array, b: jax.Array) -> jax.Array:
    a, b = (v.astype(jnp.float32).reshape(-1) for v in (a, b))
    return jnp.linalg.norm(a - b) / jnp.linalg.norm(a)


def _rows(by_rows: Any, experts: Any, i: int, x: jax.Array, p: Any) -> jax.Array:
    return by_rows(experts, x, p)


def _compile(run: Any, options: Any, *args: Any) -> Any:
    return run.lower(*args).compile(options)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key == "grouped":
            grouped(*(int(n) for n in value.split("x")))
        elif key == "moe":
            value, _, only = value.partition("/")
            cases, _, limit = value.partition("@")
            mixtures(cases.split(","), float(limit or 600), only.split(",") if only else [])
        else:
            {"route": route, "layers": layers}[key]()
