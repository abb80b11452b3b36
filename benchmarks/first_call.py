"""What a user waits for first: the import, and the first jitted call of each op (trace, lowering,
compilation, one run) beside XLA's dense operation of the same shape.

    python benchmarks/first_call.py [--rounds 5] [op ...]

Each figure is the median over fresh processes, in which the backend has started and compiled
something small; the dense and the sparse side take turns. Seconds of wall time, and of CPU time of
all threads, which other processes on the machine disturb less.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SIDES = ("dense", "jaxsparse")
CLOCKS = ("wall", "CPU")
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def calls(name: str, sparse: bool) -> Call:
    """The function of one side, and its arguments; made before the clock starts."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jaxsparse as js

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape, np.float32))

    def some(*shape: int, density: float = 0.3) -> Any:
        return jnp.asarray(rng.random(shape) < density)

    def dense_conv(x: Any, kernel: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    image, kernel, mask = normal(4, 32, 32, 64), normal(3, 3, 64, 64), some(4, 32, 32)
    a, b = normal(512, 256), normal(256, 512)
    pruned = np.where(rng.random((256, 512)) < 0.1, rng.standard_normal((256, 512)), 0)
    pruned = pruned.astype(np.float32)

    def conv() -> Call:
        return (js.masked_conv, (image, kernel, mask)) if sparse else (dense_conv, (image, kernel))

    def conv_gradient() -> Call:
        run, args = conv()
        return jax.grad(lambda *each: jnp.sum(run(*each) ** 2), (0, 1)), args

    def conv_stack() -> Call:
        if sparse:
            return js.masked_conv_stack, (image, (kernel, kernel), mask, (image, image))
        return lambda x, k: dense_conv(dense_conv(x, k), k), (image, kernel)

    def dense_layer() -> Call:
        tokens, mask = normal(8, 64, 256), js.lengths_mask(jnp.full(8, 20), 64)
        return (js.masked_dense, (tokens, b, mask)) if sparse else (jnp.matmul, (tokens, b))

    def product() -> Call:
        blocks = some(16, 8)
        if sparse:
            return lambda a, b, m: js.masked_matmul(a, b, a_mask=m, granularity=(32, 32)), (
                a,
                b,
                blocks,
            )
        return jnp.matmul, (a, b)

    def grouped() -> Call:
        experts, sizes = normal(8, 256, 512), jnp.full(8, 64, jnp.int32)
        if sparse:
            return js.grouped_matmul, (a, experts, sizes)
        return jnp.matmul, (a.reshape(8, 64, 256), experts)

    def frozen() -> Call:
        weight = js.pruned.inspect(pruned)
        return (lambda x: js.pruned_matmul(x, weight), (a,)) if sparse else (jnp.matmul, (a, b))

    def frozen_conv() -> Call:
        keep = np.asarray(some(3, 3, 64, 64, density=0.1))
        weight = js.pruned.inspect(np.where(keep, np.asarray(kernel), 0), kind="conv")
        if sparse:
            return lambda x: js.pruned_conv(x, weight), (image,)
        return dense_conv, (image, kernel)

    def saturated() -> Call:
        layer = js.bounded.inspect(pruned, 0.0, 32.0)
        if sparse:
            return lambda x: js.bounded_matmul(x, layer).values, (a,)
        return lambda x, w: jnp.clip(x @ w, 0, 32), (a, b)

    made: dict[str, Callable[[], Call]] = {
        "masked_conv": conv,
        "masked_conv, gradient": conv_gradient,
        "masked_conv_stack": conv_stack,
        "masked_dense": dense_layer,
        "masked_matmul": product,
        "grouped_matmul": grouped,
        "pruned_matmul": frozen,
        "pruned_conv": frozen_conv,
        "bounded_matmul": saturated,
    }
    return made[name]()


NAMES = (
    *("masked_conv", "masked_conv, gradient", "masked_conv_stack", "masked_dense"),
    *("masked_matmul", "grouped_matmul", "pruned_matmul", "pruned_conv", "bounded_matmul"),
)


def child(name: str, side: str) -> dict[str, float]:
    """The figures of this process, in seconds."""
    marks = [clocks()]
    import jax

    marks.append(clocks())
    import jaxsparse  # noqa: F401

    marks.append(clocks())
    run, args = calls(name, sparse=side == "jaxsparse")
    jax.block_until_ready((args, jax.jit(lambda x: x + 1)(1.0)))
    start = clocks()
    jax.block_until_ready(jax.jit(run)(*args))
    taken = [*itertools.pairwise(marks), (start, clocks())]
    return {
        f"{what} {clock}": after[i] - before[i]
        for what, (before, after) in zip(("jax", "jaxsparse", "call"), taken, strict=True)
        for i, clock in enumerate(CLOCKS)
    }


def clocks() -> tuple[float, float]:
    """Now, in seconds of the wall's clock and of this process's CPU time."""
    return time.perf_counter(), time.process_time()


def in_a_process(name: str, side: str) -> dict[str, float]:
    """`child` in a fresh process."""
    command = [sys.executable, __file__, "--child", name, side]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def middle(some: list[dict[str, float]], what: str) -> float:
    """The median over processes."""
    return statistics.median(each[what] for each in some)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("op", nargs="*", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes of each side")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(child(*chosen.child)))
        return
    names = chosen.op or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from jaxsparse.bench.report.provenance import provenance

    turns = [(name, side) for name in names for _ in range(chosen.rounds) for side in SIDES]
    found: dict[tuple[str, str], list[dict[str, float]]] = {turn: [] for turn in turns}
    console = Console(stderr=True)
    for turn in track(turns, "first calls", console=console, transient=True):
        found[turn].append(in_a_process(*turn))
    every = [each for some in found.values() for each in some]
    table = Table("[s]", *(f"{column}, {clock}" for clock in CLOCKS for column in (*SIDES, "more")))
    cells = []
    for clock in CLOCKS:
        alone, more = middle(every, f"jax {clock}"), middle(every, f"jaxsparse {clock}")
        cells += [alone, alone + more, more]
    table.add_row("import", *(f"{t:.3f}" for t in cells))
    for name in names:
        cells = []
        for clock in CLOCKS:
            dense, sparse = (middle(found[name, side], f"call {clock}") for side in SIDES)
            cells += [dense, sparse, sparse - dense]
        table.add_row(name, *(f"{t:.3f}" for t in cells))
    Console(width=120).print(table)
    print("\n".join(provenance().lines()))


if __name__ == "__main__":
    main()
