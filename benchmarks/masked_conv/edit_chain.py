"""A whole network after an edit, wall time as a user sees it: examples/models/edit_network.py on
this machine's device.

    python benchmarks/masked_conv/edit_chain.py [--size 512 --size 1024] [--area 0.1] \\
        [--dtype bfloat16]

Dense is the jitted network; ours computes again what the edit can reach, the activations of the
pass before as `base`, in their own buffers, one index per resolution. Printed beside the times: the
bytes that the compiled function keeps for temporaries, and the copies in it. Exit status 1 when the
results differ.

What starting a call costs, and dense with the arguments that ours has:
benchmarks/masked_conv/edit_host.py.
"""

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from jaxsparse.bench.report.provenance import provenance

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from models.edit_network import edit_pass, first_pass, make_params, shared_masks

TOLERANCE = {"bfloat16": 5e-2, "float32": 2e-2}  # TF32 over fifteen layers


def square(size: int, area: float) -> np.ndarray:
    """An edited square of `area` of the image, near its middle: bool[1, size, size]."""
    side = round(size * math.sqrt(area))
    start = (size - side) // 2
    mask = np.zeros((1, size, size), bool)
    mask[:, start : start + side, start : start + side] = True
    return mask


def milliseconds(step: Callable[[], Any], calls: int = 20) -> float:
    """The time of one call of `step`, `calls` of them started and the last waited for."""
    jax.block_until_ready(step())
    start = time.perf_counter()
    for _ in range(calls):
        last = step()
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / calls * 1e3


def measure(size: int, area: float, dtype: str, rounds: int) -> dict[str, Any]:
    """The row of one size: times in milliseconds, densities, and the error."""
    kind = jnp.dtype(dtype)
    params = [(kernel.astype(kind), bias) for kernel, bias in make_params()]
    photo = jax.random.uniform(jax.random.key(0), (1, size, size, 3)).astype(kind)
    edited = jnp.asarray(square(size, area))
    changed = jnp.where(edited[..., None], 1 - photo, photo)
    dense = jax.jit(lambda params, photo: first_pass(params, photo)[0])
    edit = functools.partial(edit_pass, form="sparse")
    state = jax.jit(first_pass)(params, photo)
    compiled = jax.jit(edit, donate_argnums=0).lower(state, params, changed, edited).compile()
    text = compiled.as_text() or ""
    held = [compiled(state, params, changed, edited)]
    want = dense(params, changed)
    error = float(jnp.abs(held[0][0] - want).max().astype(jnp.float32))

    def step() -> Any:
        held[0] = compiled(held[0], params, changed, edited)
        return held[0][0]

    times: dict[str, list[float]] = {"dense": [], "sparse": []}
    for _ in range(rounds):
        times["dense"].append(milliseconds(lambda: dense(params, changed)))
        times["sparse"].append(milliseconds(step))
    took = {name: statistics.median(values) for name, values in times.items()}
    memory = compiled.memory_analysis()
    return {
        "size": size,
        "edited": float(edited.mean()),
        "computed": [float(m.mean()) for m in shared_masks(edited)],
        "dense": took["dense"],
        "sparse": took["sparse"],
        "error": error,
        "temporaries": memory.temp_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "copies": text.count(" copy("),
    }


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, action="append", help="pixels a side; repeatable")
    parser.add_argument("--area", type=float, default=0.1, help="share of the image edited")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(TOLERANCE))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    where = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    table = Table(title=f"{where.device}, commit {where.commit}, {versions}; {given.dtype}")
    names = ("size", "edited", "computed", "dense [ms]", "ours [ms]", "faster", "error")
    for name in (*names, "temporaries [MB]", "aliased [MB]", "copies"):
        table.add_column(name, justify="right")
    good = True
    for size in given.size or (512, 1024):
        row = measure(size, given.area, given.dtype, given.rounds)
        good &= row["error"] <= TOLERANCE[given.dtype]
        table.add_row(
            f"{size}x{size}",
            f"{row['edited']:.3f}",
            ", ".join(f"{share:.3f}" for share in row["computed"]),
            f"{row['dense']:.3f}",
            f"{row['sparse']:.3f}",
            f"{row['dense'] / row['sparse']:.2f}x",
            f"{row['error']:.1e}",
            f"{row['temporaries'] / 1e6:.1f}",
            f"{row['aliased'] / 1e6:.1f}",
            str(row["copies"]),
        )
    Console(width=150).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
