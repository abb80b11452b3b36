"""What the products of a large MoE layer can cost at all: cuBLAS (torch) on dense matrices of the
same FLOPs, and on a matrix an expert, beside the whole layer, each for long enough that the chip's
power limit sets the clock.

    python benchmarks/moe/power.py [--seconds 1.5] [--rounds 2] [--parts]

Prints microseconds, TFLOP/s, joules a call by the driver's energy counter, and the clock, power and
limit reasons that nvidia-smi saw meanwhile. `--parts`: the layer's own steps too, each alone, and
its products with equal groups and with rows that lie in place: what these cost.
"""

import argparse
import ctypes
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

import jaxsparse as js
from jaxsparse.nn import moe
from jaxsparse.ops.grouped_gated.api import grouped_gated

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


@functools.cache
def _energy_counter() -> Callable[[], float]:
    """A function that reads the joules that the first device has taken so far."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    device, value = ctypes.c_void_p(), ctypes.c_ulonglong()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))

    def joules() -> float:
        status = library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(value))
        return value.value / 1e3 if status == 0 else float("nan")

    return joules


def measure(name: str, call: Callable[[], Any], flops: float, seconds: float) -> None:
    """Run `call` for `seconds`, in rows that are waited for; print a line."""
    call()
    torch.cuda.synchronize()
    lines: list[str] = []
    rounds, joules = 0, _energy_counter()
    with watched(lines):
        time.sleep(0.1)
        start, before = time.perf_counter(), joules()
        while time.perf_counter() - start < seconds:
            last = None
            for _ in range(IN_A_ROW):
                last = call()
            jax.block_until_ready(last)
            torch.cuda.synchronize()
            rounds += 1
        took = (time.perf_counter() - start) / (rounds * IN_A_ROW)
        energy = (joules() - before) / (rounds * IN_A_ROW)
    seen = [line.split(", ") for line in lines[len(lines) // 2 :] if line.count(",") == 2]
    clocks = [float(clock) for clock, _, _ in seen] or [0.0]
    watts = [float(power) for _, power, _ in seen] or [0.0]
    print(
        f"{name:34s} {1e6 * took:7.0f} us {1e-12 * flops / took:5.0f} TFLOP/s, {energy:.3f} J, "
        f"{statistics.median(clocks):.0f} MHz, {statistics.median(watts):.0f} W, "
        f"reasons {sorted({reason for _, _, reason in seen})}",
        flush=True,
    )


@functools.partial(jax.jit, static_argnums=(1, 2))
def normal(seed: int, shape: tuple[int, ...], scale: float) -> jax.Array:
    """Random bfloat16 numbers, made on the device."""
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16) * jnp.bfloat16(scale)


def layer(
    tokens: int, d: int, hidden: int, experts: int, top_k: int, parts: bool
) -> dict[str, Callable[[], Any]]:
    """Calls of the jitted layer, bfloat16, and of its products, each alone."""
    shapes = moe.parameter_shapes(d, experts, hidden, "swiglu")
    params = {k: normal(i, s, s[-2] ** -0.5) for i, (k, s) in enumerate(shapes.items())}
    x = normal(9, (tokens, d), 1.0)
    options = moe.Options(top_k, "swiglu")
    run = jax.jit(functools.partial(moe.run, mask=None, options=options))
    calls = {"the layer": lambda: run(x, params)[0]}
    if not parts:
        return calls
    logits = moe.route_logits(x, params["router"], None)
    sizes, rows, weights, _ = moe.choose_experts(logits, None, options)
    equal = jnp.full(experts, tokens * top_k // experts, jnp.int32)
    h = normal(8, (tokens * top_k, hidden), 1.0)
    wide = normal(7, (tokens * top_k, d), 1.0)
    gated = jax.jit(functools.partial(grouped_gated, gather=rows))
    in_place = jax.jit(functools.partial(grouped_gated, gather=None))
    product = jax.jit(functools.partial(js.grouped_matmul, row_weights=weights))
    combined = jax.jit(
        functools.partial(js.grouped_matmul, scatter=rows, row_weights=weights, num_rows=tokens)
    )
    route = jax.jit(
        lambda x, w: moe.choose_experts(moe.route_logits(x, w, None), None, options)[:3]
    )
    into, down = (params["gate"], params["up"]), params["down"]
    return calls | {
        "router, choice, routing": lambda: route(x, params["router"]),
        "first product, gathered, gated": lambda: gated(x, *into, sizes),
        "first product, equal groups": lambda: gated(x, *into, equal),
        "first product, rows in place": lambda: in_place(wide, *into, sizes),
        "first product, both": lambda: in_place(wide, *into, equal),
        "second product": lambda: product(h, down, sizes),
        "second product, equal groups": lambda: product(h, down, equal),
        "second product, combined": lambda: combined(h, down, sizes),
    }


def main() -> None:
    """Two layers, three ways each, round by round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    seconds = given.seconds
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
            **layer(tokens, d, hidden, experts, top_k, given.parts),
        }
        share = {"first": 2 / 3, "second": 1 / 3, "router": 0.0}
        for _ in range(given.rounds):
            for name, call in ways.items():
                part = share.get(name.split()[0].rstrip(","), 1.0)
                measure(name, call, part * flops, seconds)


if __name__ == "__main__":
    main()
