"""What the products of a large MoE layer can cost at all: cuBLAS (torch) on dense matrices of the
same FLOPs, and on a matrix an expert, beside the whole layer, each for long enough that the chip's
power limit sets the clock.

    python benchmarks/moe_power.py [--seconds 1.5]

Prints microseconds, TFLOP/s, and the clock, power and limit reasons that nvidia-smi saw meanwhile.
"""

import argparse
import functools
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import torch

from jaxsparse.nn import moe

LAYERS = ((8192, 2048, 768, 128, 8), (16384, 2560, 1280, 64, 4))
QUERY = "clocks.sm,power.draw.instant,clocks_event_reasons.active"
IN_A_ROW = 20  # calls between two looks at the clock of the host


@contextmanager
def watched(lines: list[str]) -> Iterator[None]:
    """What nvidia-smi says every 50 ms, a line each."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-lms", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()
            lines.extend(process.communicate()[0].splitlines())


def measure(name: str, call: Callable[[], Any], flops: float, seconds: float) -> None:
    """Run `call` for `seconds`, in rows that are waited for; print a line."""
    call()
    torch.cuda.synchronize()
    lines: list[str] = []
    rounds = 0
    with watched(lines):
        time.sleep(0.1)
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            last = None
            for _ in range(IN_A_ROW):
                last = call()
            jax.block_until_ready(last)
            torch.cuda.synchronize()
            rounds += 1
        took = (time.perf_counter() - start) / (rounds * IN_A_ROW)
    seen = [line.split(", ") for line in lines[len(lines) // 2 :] if line.count(",") == 2]
    clocks = [float(clock) for clock, _, _ in seen] or [0.0]
    watts = [float(power) for _, power, _ in seen] or [0.0]
    print(
        f"{name:34s} {1e6 * took:7.0f} us {1e-12 * flops / took:5.0f} TFLOP/s, "
        f"{statistics.median(clocks):.0f} MHz, {statistics.median(watts):.0f} W, "
        f"reasons {sorted({reason for _, _, reason in seen})}",
        flush=True,
    )


def layer(tokens: int, d: int, hidden: int, experts: int, top_k: int) -> Callable[[], Any]:
    """A call of the jitted layer, bfloat16."""
    shapes = moe.parameter_shapes(d, experts, hidden, "swiglu")

    @functools.partial(jax.jit, static_argnums=(1, 2))
    def normal(seed: int, shape: tuple[int, ...], scale: float) -> jax.Array:
        return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16) * jnp.bfloat16(scale)

    params = {k: normal(i, s, s[-2] ** -0.5) for i, (k, s) in enumerate(shapes.items())}
    x = normal(9, (tokens, d), 1.0)
    run = jax.jit(functools.partial(moe.run, token_mask=None, options=moe.Options(top_k, "swiglu")))
    return lambda: run(x, params)[0]


def main() -> None:
    """Two layers, three ways each, twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    seconds = parser.parse_args().seconds
    for tokens, d, hidden, experts, top_k in LAYERS:
        rows = tokens * top_k
        flops = 6.0 * rows * d * hidden
        print(f"{tokens} tokens, d {d}, hidden {hidden}, {experts} experts, top {top_k}")
        make = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16)
        x, h = make(rows, d), make(rows, hidden)
        into, out = make(experts, d, 2 * hidden), make(experts, hidden, d)
        up, down = make(rows, 2 * hidden), make(rows, d)

        def one(x=x, h=h, into=into, out=out, up=up, down=down) -> None:
            torch.mm(x, into[0], out=up)
            torch.mm(h, out[0], out=down)

        def each(x=x, h=h, into=into, out=out, up=up, down=down) -> None:
            split = (len(into), -1)
            torch.bmm(x.view(*split, x.shape[1]), into, out=up.view(*split, up.shape[1]))
            torch.bmm(h.view(*split, h.shape[1]), out, out=down.view(*split, down.shape[1]))

        ways = {
            "cuBLAS, one matrix": one,
            "cuBLAS, a matrix an expert": each,
            "the layer": layer(tokens, d, hidden, experts, top_k),
        }
        for _ in range(2):
            for name, call in ways.items():
                measure(name, call, flops, seconds)


if __name__ == "__main__":
    main()
