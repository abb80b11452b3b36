"""What the host takes to start a network after an edit, and what the caller can do about it.

    python benchmarks/masked_conv/edit_host.py [--size 512 ...] [--edits 8] [--rounds 5]

The network of examples/models/edit_network.py, bfloat16, batch 1, a tenth of the image edited:

- dense: the jitted network; parameters and the photograph go in, the image comes out;
- dense, as many arguments: it also takes the activations of the pass before, donated, and returns
  the new ones, as ours does: 48 arrays in, 16 out;
- ours: the pass after an edit;
- parameters closed over: dense and ours with the parameters as constants of the compiled function;
- n edits a call: a scan of ours, and of dense with as many arguments, over n photographs.

*Wall*: 20 calls started, the last waited for. *Host*: until the 20 are started, on an idle GPU.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from edit_chain import square
from rich.console import Console
from rich.table import Table

from jaxsparse.bench.report.provenance import provenance

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from models.edit_network import edit_pass, first_pass, make_params

CALLS = 20
State = tuple[jax.Array, list[jax.Array]]


def forms(size: int, edits: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]]:
    """Name -> (function of (state, *arguments) -> state, its arguments, edits a call)."""
    params = [(kernel.astype(jnp.bfloat16), bias) for kernel, bias in make_params()]
    photo = jax.random.uniform(jax.random.key(0), (1, size, size, 3)).astype(jnp.bfloat16)
    edited = jnp.asarray(square(size, 0.1))
    changed = jnp.where(edited[..., None], 1 - photo, photo)
    photos, masks = (jnp.stack([a] * edits) for a in (changed, edited))

    def dense(_: State, params: Any, photo: jax.Array) -> State:
        return first_pass(params, photo)[0], []

    def dense_alike(state: State, params: Any, photo: jax.Array, edited: jax.Array) -> State:
        return first_pass(params, photo)

    def ours(state: State, params: Any, photo: jax.Array, edited: jax.Array) -> State:
        return edit_pass(state, params, photo, edited, form="sparse")

    def closed(state: State, photo: jax.Array, edited: jax.Array) -> State:
        return ours(state, params, photo, edited)

    def dense_closed(_: State, photo: jax.Array) -> State:
        return first_pass(params, photo)[0], []

    def scanned(step: Any) -> Callable[..., State]:
        def run(state: State, params: Any, photos: jax.Array, masks: jax.Array) -> State:
            def body(state: State, each: Any) -> tuple[State, None]:
                return step(state, params, *each), None

            return jax.lax.scan(body, state, (photos, masks))[0]

        return run

    one, many = (params, changed, edited), (params, photos, masks)
    return {
        "dense": (dense, (params, changed), 1),
        "dense, parameters closed over": (dense_closed, (changed,), 1),
        "dense, as many arguments": (dense_alike, one, 1),
        "ours": (ours, one, 1),
        "ours, parameters closed over": (closed, (changed, edited), 1),
        f"dense, {edits} edits a call": (scanned(dense_alike), many, edits),
        f"ours, {edits} edits a call": (scanned(ours), many, edits),
    }


def times(call: Callable[..., State], state: State, given: Any, rounds: int) -> tuple[float, float]:
    """Milliseconds a call: of wall time, and until it is started; medians."""
    wall, host = [], []
    for _ in range(rounds + 1):
        state = jax.block_until_ready(call(state, *given))
        start = time.perf_counter()
        for _ in range(CALLS):
            state = call(state, *given)
        started = time.perf_counter()
        jax.block_until_ready(state)
        wall.append((time.perf_counter() - start) / CALLS * 1e3)
        host.append((started - start) / CALLS * 1e3)
    return statistics.median(wall[1:]), statistics.median(host[1:])


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, nargs="*", default=[512, 1024])
    parser.add_argument("--edits", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    table = Table("size", "form", "arrays in", "out", "wall ms an edit", "host ms an edit")
    for size in given.size:
        for name, (function, arguments, edits) in forms(size, given.edits).items():
            # Each form has a state of its own: it is donated.
            params = [(kernel.astype(jnp.bfloat16), bias) for kernel, bias in make_params()]
            blank = jnp.zeros((1, size, size, 3), jnp.bfloat16)
            state = jax.jit(first_pass)(params, blank)
            alone = name.startswith("dense") and len(arguments) < 3  # takes and returns no cache
            if alone:
                state = (state[0], [])
            donated = () if alone else (0,)
            call = jax.jit(function, donate_argnums=donated, keep_unused=bool(donated))
            wall, host = times(call, state, arguments, given.rounds)
            arrays = len(jax.tree.leaves((state if donated else (), arguments)))
            results = len(jax.tree.leaves(state))
            shown = (f"{wall / edits:.3f}", f"{host / edits:.3f}")
            table.add_row(f"{size}x{size}", name, str(arrays), str(results), *shown)
    console = Console(width=120)
    console.print(*provenance("python benchmarks/masked_conv/edit_host.py").lines(), sep="\n")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
