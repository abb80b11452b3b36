"""One saturated layer whose weights prove nothing, against cuSPARSE and BCOO, in one run.

    python benchmarks/bounded_matmul/rivals.py [--markdown FILE] [--seconds 600] [--only NAME ...]
        [--batch N ...] [--widths 1024x1024 ...] [--density D ...]

Random signed weights, a bias for every output, bounds 1 and 6 in turn. Microseconds of GPU time a
call over distinct inputs, between CUDA events while the host is ahead: of a jitted chain for JAX's
sides (the codes are part of "ours" and "row", not of "no codes"), of eager calls for cuSPARSE (CSR
in float32, algorithm as cupy picks it), whose bias and bounds are one fused kernel behind the
product. Nothing is converted or transposed in the timed part: a row of images is a column of
cuSPARSE's operand in place. Every output is checked against float64. Exit status 1 when an output
was wrong.
"""

import argparse
import functools
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cupy
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from cupyx.scipy import sparse as cupy_sparse
from jax.experimental import sparse as jax_sparse

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance

ROUNDS, CHECKED = 5, 128
BOUND = 1e-5  # of the layer's bound and of what its sums add up
BCOO_MOST = 8e9  # entries x images: it makes an array of that many values
OWN = ("ours", "no codes", "row")
SIDES = (*OWN, "cuSPARSE", "BCOO")
ALL = (
    *(((1000, 500), batch, d) for batch in (1, 64, 4096, 60000) for d in (0.01, 0.03, 0.1, 0.3)),
    *(((1024, 1024), batch, d) for batch in (1, 64, 4096, 60000) for d in (0.03, 0.3)),
    *(((777, 1001), batch, 0.1) for batch in (1, 63, 4095)),
    *(((4096, 4096), batch, d) for batch in (1, 64, 4096) for d in (0.01, 0.1, 0.3)),
    ((4096, 4096), 60000, 0.03),
)
Case = tuple[tuple[int, int], int, float]
Measured = tuple[float, Any]

_bounded: Any = cupy.ElementwiseKernel(
    "float32 bias, float32 upper", "float32 y", "y = min(max(y + bias, 0.0f), upper)", "bounded"
)


@functools.cache
def clock() -> GpuClock:
    """The pair of events of all sides; held for longer than the eager calls take to enqueue."""
    return GpuClock(3000)


def chained(function: Callable[..., Any], shared: Any, inputs: list[jax.Array]) -> Measured:
    """Microseconds a call of a jitted chain of function(x, shared), and the first result."""

    @jax.jit
    def run(inputs: list[jax.Array], shared: Any) -> Any:
        return clock().stop([function(x, shared) for x in clock().start(inputs)])

    out, took = jax.block_until_ready(run(inputs, shared)), []
    first = np.asarray(out[0][:CHECKED])
    for _ in range(ROUNDS):
        out = None
        out = jax.block_until_ready(run(inputs, shared))
        took.append(clock().microseconds() / len(inputs))
    return float(np.median(took)), first


def ours(weight: Any, bias: np.ndarray, upper: float, inputs: Any, **options: Any) -> Measured:
    """One `bounded_matmul`; its result filled in outside of the timed part."""
    layer = jax.tree.map(jnp.asarray, js.bounded.inspect(weight.T, bias, upper))

    def run(x: jax.Array, layer: Any) -> Any:
        return js.bounded_matmul(x, layer, implementation="cuda", **options).values

    us, _ = chained(run, layer, inputs)
    whole = js.bounded_matmul(inputs[0], layer, implementation="cuda", **options)
    return us, np.asarray(whole.materialize()[:CHECKED])


def bcoo(weight: Any, bias: np.ndarray, upper: float, inputs: Any) -> Measured:
    """jax.experimental.sparse under jit."""
    shared = jax_sparse.BCOO.from_scipy_sparse(weight), jnp.asarray(bias)

    def run(x: jax.Array, shared: Any) -> jax.Array:
        return jnp.clip((shared[0] @ x.T).T + shared[1], 0.0, upper)

    return chained(run, shared, inputs)


def cusparse(weight: Any, bias: np.ndarray, upper: float, inputs: Any) -> Measured:
    """cuSPARSE's product, then bias and bounds in place."""
    left, column = cupy_sparse.csr_matrix(weight), cupy.asarray(bias)[:, None]
    columns = [cupy.from_dlpack(x).T for x in inputs]

    def run(x: Any) -> Any:
        y = left @ x
        _bounded(column, np.float32(upper), y)
        return y

    first, took = run(columns[0]).T[:CHECKED].get(), []
    stream = cupy.cuda.get_current_stream()
    for _ in range(ROUNDS):
        stream.synchronize()
        clock().begin(stream.ptr)
        for x in columns:
            run(x)
        clock().end(stream.ptr)
        took.append(clock().microseconds() / len(columns))
    return float(np.median(took)), first


def measure(case: Case, upper: float, names: list[str]) -> tuple[dict[str, float], list[str]]:
    """Name -> microseconds, and what went wrong."""
    (n_in, n_out), batch, density = case
    rng = np.random.default_rng(0)
    weight = sp.random(n_out, n_in, density, random_state=rng, dtype=np.float32, format="csr")
    scale = 2 / max(density * n_in, 1.0) ** 0.5
    weight.data = (rng.standard_normal(weight.nnz) * scale).astype(np.float32)
    bias = (rng.standard_normal(n_out) * 0.3).astype(np.float32)
    calls = 6 if batch * (n_in + n_out) < 2e8 else 2
    keys = jax.random.split(jax.random.key(0), calls)
    inputs = [jax.random.uniform(key, (batch, n_in)) for key in keys]
    x = np.asarray(inputs[0][:CHECKED], np.float64)
    double = weight.astype(np.float64)
    want = np.clip((double @ x.T).T + bias, 0.0, upper)
    limit = BOUND * (upper + (abs(double) @ x.T).max())
    sides: dict[str, Callable[[], Measured]] = {
        "ours": lambda: ours(weight, bias, upper, inputs),
        "no codes": lambda: ours(weight, bias, upper, inputs, record=False),
        "row": lambda: ours(weight, bias, upper, inputs, dataflow="row"),
        "cuSPARSE": lambda: cusparse(weight, bias, upper, inputs),
        "BCOO": lambda: bcoo(weight, bias, upper, inputs),
    }
    times, wrong = {}, []
    for name in names:
        if name == "BCOO" and weight.nnz * batch > BCOO_MOST:
            continue
        times[name], got = sides[name]()
        error = float(np.abs(got - want).max())
        if not error <= limit:
            wrong.append(f"{name} is wrong by {error:.1e} ({(n_in, n_out)}, {batch}, {density})")
    return times, wrong


def lines_of(rows: dict[Case, dict[str, float]], names: list[str]) -> Iterator[str]:
    """A Markdown table."""
    rivals = [n for n in names if n not in OWN]
    ratios = [f"{n} / ours" for n in rivals]
    head = ["inputs x outputs", "batch", "density", *names, *ratios]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---:|' * len(head)}"
    for ((n_in, n_out), batch, density), times in rows.items():
        cells = [f"{times[n]:.1f}" if n in times else "" for n in names]
        over = [f"{times[n] / times['ours']:.2f}" if n in times else "" for n in rivals]
        yield f"| {' | '.join([f'{n_in} x {n_out}', str(batch), f'{density:g}', *cells, *over])} |"


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--batch", type=int, nargs="+")
    parser.add_argument("--widths", nargs="+", help="inputs x outputs, as 1000x500")
    parser.add_argument("--density", type=float, nargs="+")
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    names = list(dict.fromkeys(["ours", *given.only]))
    start, problems = time.monotonic(), []
    rows: dict[Case, dict[str, float]] = {}
    for number, case in enumerate(ALL):
        (n_in, n_out), batch, density = case
        if (
            (given.batch and batch not in given.batch)
            or (given.density and density not in given.density)
            or (given.widths and f"{n_in}x{n_out}" not in given.widths)
        ):
            continue
        if time.monotonic() - start > given.seconds:
            break
        rows[case], wrong = measure(case, (1.0, 6.0)[number % 2], names)
        problems += wrong
        shown = ", ".join(f"{name} {us:.1f}" for name, us in rows[case].items())
        print(f"{n_in}x{n_out} {batch} {density:g}: {shown}", *wrong, flush=True)
    if given.markdown:
        source = provenance(shlex.join(["python", *sys.argv])).lines()
        notes = [f"- {line}" for line in source] + ["- Microseconds of GPU time a call"]
        text = [
            "# One saturated layer of random weights against its rivals",
            "",
            *notes,
            "",
            *lines_of(rows, names),
        ]
        given.markdown.write_text("\n".join(text) + "\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
