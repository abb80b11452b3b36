"""Pruned convolutions on CUDA against dense ones in one run: the 3x3 layers of ResNet-50 (image 56,
28, 14 and 7) at 90 and 95 %, and SparDR's CV1-CV13; float32, batch 1 and 32.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/conv_gpu.py [--batch 1 32] [--cases CV1 R56_0.9]
                                [--seconds 600] [--no-xla] [--wall] [--out FILE.md]

Sides: this package's `windows` executor in both layouts, XLA's dense convolution at "highest" and,
where torch is installed, cuDNN with and without TF32, the faster of its two layouts. Microseconds a
call of GPU time: jitted chains of ten calls on distinct inputs between two events in XLA's stream,
which is held while the host catches up, the least of some (cuDNN: a CUDA graph of ten calls, by
events). --wall: instead the wall time of a call, several chains queued before the wait, which holds
a dispatch's share. Every output of the last chain is checked against the dense one. Exit status 1
when one was wrong.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from cases import CONVS, ConvCase, kernel_of, layer_of

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance

CALLS, CHAINS, ROUNDS = 10, 12, 4
RESNET = {
    f"R{size}_{sparsity:g}": ConvCase(f"R{size}", width, size, width, 3, 1, 1, sparsity)
    for sparsity in (0.9, 0.95)
    for width, size in ((64, 56), (128, 28), (256, 14), (512, 7))
}
CASES = RESNET | {case.name: case for case in CONVS}
GROUP = {56: 1, 28: 2, 14: 3, 7: 4}  # of the network's blocks, by the image's size
SIDES = ("windows NCHW", "windows NHWC", "XLA highest", "cuDNN fp32", "cuDNN TF32")


def weights(case: ConvCase) -> np.ndarray:
    """float32[kh, kw, C, O]: real patterns where JAXSPARSE_DATA is set."""
    if case.name.startswith("CV"):
        return kernel_of(case)[0]
    shape = (case.outputs, 9 * case.channels)
    flat, _ = layer_of(f"bottleneck_2_block_group{GROUP[case.size]}_1_1", shape, case.sparsity)
    return np.ascontiguousarray(flat.reshape(3, 3, case.channels, case.outputs), np.float32)


def clocked(clock: GpuClock, call: Callable[[Any], Any], xs: list[Any]) -> tuple[float, Any]:
    """(microseconds a call on the GPU, the outputs of the last chain)."""
    run = jax.jit(lambda xs: clock.stop([call(x) for x in clock.start(xs)]))
    ys, took = jax.block_until_ready(run(xs)), []
    for _ in range(2 * ROUNDS):
        ys = jax.block_until_ready(run(xs))
        took.append(clock.microseconds() / CALLS)
    return min(took), ys


def chained(call: Callable[[Any], Any], xs: list[Any]) -> tuple[float, Any]:
    """(microseconds a call of wall time, the outputs of the last chain)."""
    run = jax.jit(lambda xs: [call(x) for x in xs])
    ys = jax.block_until_ready(run(xs))
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CHAINS):
            ys = run(xs)
        jax.block_until_ready(ys)
        took.append((time.perf_counter() - start) / (CHAINS * CALLS) * 1e6)
    return min(took), ys


def torch_side(case: ConvCase, xs: list[np.ndarray], kernel: np.ndarray) -> dict[str, float]:
    """cuDNN's microseconds a call, the faster of its layouts, with float32 and with TF32."""
    import torch

    torch.backends.cudnn.benchmark = True
    found: dict[str, float] = {}
    for name, tf32 in (("cuDNN fp32", False), ("cuDNN TF32", True)):
        torch.backends.cudnn.allow_tf32 = tf32
        for layout in (torch.contiguous_format, torch.channels_last):
            w = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()).cuda()
            images = [torch.from_numpy(x).cuda().contiguous(memory_format=layout) for x in xs]
            took = _graph(torch, case, images, w.contiguous(memory_format=layout))
            found[name] = min(found.get(name, np.inf), took)
    torch.cuda.empty_cache()
    return found


def _graph(torch: Any, case: ConvCase, images: list[Any], weight: Any) -> float:
    def call(x: Any) -> Any:
        return torch.nn.functional.conv2d(x, weight, None, case.stride, case.padding)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(images[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            ys = [call(x) for x in images]
    torch.cuda.synchronize()
    took = []
    for _ in range(ROUNDS + 1):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(stop) / len(ys) * 1e3)
    return min(took)


@dataclasses.dataclass
class Row:
    """Microseconds of each side of one case, and the worst error over the largest value."""

    case: str
    batch: int
    kept: int
    took: dict[str, float]
    error: float

    @property
    def best(self) -> float:
        """Of this package."""
        return min(v for k, v in self.took.items() if k.startswith("windows"))

    def cells(self) -> list[str]:
        """Of the table."""
        sides = [f"{self.took[s]:.1f}" if s in self.took else "" for s in SIDES]
        ratios = [f"{self.took[s] / self.best:.2f}x" if s in self.took else "" for s in SIDES[2:]]
        return [self.case, str(self.batch), str(self.kept), *sides, *ratios]


def measure(name: str, batch: int, time_it: Callable[..., tuple[float, Any]], xla: bool) -> Row:
    """One case; `time_it` is `chained`, or `clocked` with its clock."""
    case = CASES[name]
    kernel, rng = weights(case), np.random.default_rng(0)
    shape = (batch, case.channels, case.size, case.size)
    noise = rng.standard_normal(shape, np.float32)
    host = [noise * np.float32(1 + i / 16) for i in range(CALLS)]
    options: dict[str, Any] = {"strides": case.stride, "padding": case.padding}
    options |= {"precision": "highest"}
    plan = js.pruned.inspect(kernel, kind="conv")
    took: dict[str, float] = {}
    results: dict[str, Any] = {}
    for layout in ("NCHW", "NHWC"):
        xs = [jnp.asarray(x if layout == "NCHW" else x.transpose(0, 2, 3, 1)) for x in host]

        def ours(x: Any, layout: str = layout) -> jax.Array:
            with js.config(variant="windows"):
                return js.pruned_conv(x, plan, layout=layout, implementation="cuda", **options)

        took[f"windows {layout}"], ys = time_it(ours, xs)
        results[layout] = ys if layout == "NCHW" else [y.transpose(0, 3, 1, 2) for y in ys]
        if layout == "NHWC" and xla:
            took["XLA highest"], _ = time_it(lambda x: dense(case, x, kernel), xs)
    want = dense(case, jnp.asarray(host[-1].transpose(0, 2, 3, 1)), kernel).transpose(0, 3, 1, 2)
    largest = float(jnp.abs(want).max())
    error = max(float(jnp.abs(ys[-1] - want).max()) / largest for ys in results.values())
    with contextlib.suppress(ImportError):
        took |= torch_side(case, host, kernel)
    return Row(name, batch, plan.pattern.entries, took, error)


def dense(case: ConvCase, x: Any, kernel: np.ndarray) -> jax.Array:
    """XLA's, in float32."""
    pads = [(case.padding, case.padding)] * 2
    dims, strides = ("NHWC", "HWIO", "NHWC"), (case.stride, case.stride)
    return jax.lax.conv_general_dilated(
        x, jnp.asarray(kernel), strides, pads, dimension_numbers=dims, precision="highest"
    )


def means(rows: list[Row]) -> list[str]:
    """Geometric means by group, batch and rival."""
    lines = []
    groups = {"ResNet 3x3, 90 %": "_0.9", "ResNet 3x3, 95 %": "_0.95", "CV1-CV13": "CV"}
    for title, mark in groups.items():
        for batch in sorted({r.batch for r in rows}):
            some = [
                r
                for r in rows
                if r.batch == batch
                and (r.case.endswith(mark) or (mark == "CV" and r.case.startswith("CV")))
            ]
            for side in SIDES[2:]:
                ratios = [r.took[side] / r.best for r in some if side in r.took]
                if ratios:
                    mean, least = float(np.exp(np.mean(np.log(ratios)))), min(ratios)
                    text = f"{mean:.2f}x, least {least:.2f}x, {len(ratios)} layers"
                    lines.append(f"{title}, batch {batch}, against {side}: geomean {text}")
    return lines


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this")
    parser.add_argument("--no-xla", action="store_true", help="leave out XLA's dense convolution")
    parser.add_argument("--wall", action="store_true", help="wall time instead of GPU time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    time_it = chained if given.wall else functools.partial(clocked, GpuClock(1000))
    start, rows = time.monotonic(), []
    for name in given.cases:
        for batch in given.batch:
            if time.monotonic() - start < given.seconds:
                rows.append(measure(name, batch, time_it, not given.no_xla))
                print(" | ".join(rows[-1].cells()), f"error {rows[-1].error:.1e}", flush=True)
    head = ["case", "batch", "kept", *SIDES, *(f"against {s}" for s in SIDES[2:])]
    kind = "wall" if given.wall else "GPU"
    lines = [f"# Pruned convolutions, float32, us of {kind} time a call", ""]
    lines += [*provenance(" ".join(["python", *sys.argv])).lines(), ""]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(r.cells())} |" for r in rows] + [""]
    lines += [f"- {line}" for line in means(rows)]
    lines += ["", f"Largest error over the largest value: {max(r.error for r in rows):.1e}."]
    print("\n".join(lines))
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n")
    return int(not all(r.error < 1e-5 for r in rows))


if __name__ == "__main__":
    sys.exit(main())
