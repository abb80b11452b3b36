"""Operations under plain `jit` on a mesh: a batch on all devices beside its share on one device.

    python benchmarks/sharding.py [--quick] [--op NAME] [--samples 9] [--out FILE.md]

Efficiency is the time of one device over that of all of them, each with the same share of the
batch: 1 where nothing is lost. Forward, and the gradient with respect to every operand that has
one. It checks that the compiled program gathers nothing, that results and gradients of what is
split are split in the same way, and that the first share equals what one device computes. Exits
with 1 where a check fails. Needs two devices; XLA_FLAGS=--xla_force_host_platform_device_count=2
makes a CPU two.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console
from rich.progress import track

import jaxsparse as js
from jaxsparse.bench.report.provenance import command_line, provenance

KINDS = {"Auto": AxisType.Auto, "Explicit": AxisType.Explicit}
#: Of results in bfloat16, relative to the largest; sums over the batch are of other addends.
TOLERANCE = 2e-2


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of arrays that a mesh splits by their first axis, and of arrays that are whole.

    Attributes:
        name: of the operation.
        call: (split, whole) -> result, split by its first axis.
        split, whole: the operands; `split` for one device's share times the number of devices.
        learned: of the operands split and whole, those that are differentiated.
    """

    name: str
    call: Callable[[Any, Any], jax.Array]
    split: dict[str, np.ndarray]
    whole: dict[str, Any]
    learned: tuple[str, ...]


def cases(devices: int, quick: bool) -> dict[str, Callable[[], Case]]:
    """Name -> what makes the case; sizes take about a millisecond of a large GPU."""
    rng = np.random.default_rng(0)
    small = 16 if quick else 1

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32).astype(jnp.bfloat16) / 8

    def conv() -> Case:
        batch, side = devices * max(64 // small, 1), 80 if not quick else 16
        mask = js.mask.blobs((batch, side, side), 0.5)
        x, kernel = normal(batch, side, side, 256 // small), normal(3, 3, 256 // small, 256)
        return Case(
            "masked_conv",
            lambda s, w: js.masked_conv(s["x"], w["kernel"], js.tile_index(s["mask"])),
            {"x": x, "mask": np.asarray(mask)},
            {"kernel": kernel},
            ("x", "kernel"),
        )

    def dense() -> Case:
        batch, tokens = devices * max(64 // small, 1), 512
        lengths = rng.integers(1, tokens, batch)
        mask = np.arange(tokens) < lengths[:, None]
        return Case(
            "masked_dense",
            lambda s, w: js.masked_dense(s["x"], w["w"], s["mask"]),
            {"x": normal(batch, tokens, 2048 // small), "mask": mask},
            {"w": normal(2048 // small, 4096 // small)},
            ("x", "w"),
        )

    def matmul() -> Case:
        batch, side = 2 * devices, 4096 // small
        mask = rng.random((batch, side // 32, side // 64)) < 0.3
        return Case(
            "masked_matmul",
            lambda s, w: js.masked_matmul(
                s["a"], w["b"], a_mask=s["a_mask"], granularity=(32, 64), density=0.3
            ),
            {"a": normal(batch, side, side), "a_mask": mask},
            {"b": normal(side, side)},
            ("a", "b"),
        )

    def attention() -> Case:
        batch, tokens, heads = 2 * devices, 8192 // small, max(16 // small, 1)
        kept = rng.random((batch, heads, tokens // 128, tokens // 128)) < 0.25
        kept |= np.eye(tokens // 128, dtype=bool)

        def call(s: Any, w: Any) -> jax.Array:
            mask = js.BlockMask.from_block_bits(s["kept"], 128, tokens, tokens)
            return js.sparse_attention(s["q"], s["k"], s["v"], mask)

        q, k, v = (normal(batch, tokens, heads, 128) for _ in range(3))
        split = {"q": q, "k": k, "v": v, "kept": kept}
        return Case("sparse_attention", call, split, {}, ("q", "k", "v"))

    def grouped() -> Case:
        experts, inner = 8, 4096 // small
        sizes = np.full(experts, 8192 // small // experts, np.int32)
        return Case(
            "grouped_matmul, n split",
            lambda s, w: js.grouped_matmul(w["x"], s["w"].transpose(1, 2, 0), w["sizes"]).T,
            {"w": normal(devices * 8192 // small, experts, inner)},
            {"x": normal(8192 // small, inner), "sizes": sizes},
            (),
        )

    def pruned() -> Case:
        weight = np.asarray(normal(2048 // small, 2048 // small), np.float32)
        frozen = js.pruned.inspect(weight, mask=js.prune.magnitude(weight, 0.95))
        return Case(
            "pruned_matmul",
            lambda s, w: js.pruned_matmul(s["x"], w["frozen"]),
            {"x": np.asarray(normal(devices * 16384 // small, 2048 // small), np.float32)},
            {"frozen": frozen},
            ("x",),
        )

    made = (conv, dense, matmul, attention, grouped, pruned)
    return dict(
        zip(
            (
                "masked_conv",
                "masked_dense",
                "masked_matmul",
                "sparse_attention",
                "grouped_matmul",
                "pruned_matmul",
            ),
            made,
            strict=True,
        )
    )


def share(case: Case, devices: int) -> dict[str, np.ndarray]:
    """One device's operands."""
    return {name: value[: len(value) // devices] for name, value in case.split.items()}


def functions(case: Case) -> dict[str, Callable[[Any, Any], Any]]:
    """Name -> the forward function, and the gradient of the sum of its squares."""
    found: dict[str, Callable[[Any, Any], Any]] = {"forward": case.call}
    if case.learned:

        def loss(learned: Any, s: Any, w: Any) -> jax.Array:
            split = {n: learned.get(n, v) for n, v in s.items()}
            whole = {n: learned.get(n, v) for n, v in w.items()}
            return jnp.sum(case.call(split, whole).astype(jnp.float32) ** 2)

        def gradient(s: Any, w: Any) -> Any:
            return jax.grad(loss)({n: {**s, **w}[n] for n in case.learned}, s, w)

        found["gradient"] = gradient
    return found


def timed(run: Callable[[], Any], calls: int) -> float:
    """Seconds a call, of `calls` that are all in flight; on a CPU one after the other, where the
    collectives of several at once starve each other of the pool's threads.
    """
    begin = time.perf_counter()
    for _ in range(calls):
        out = run()
        if jax.default_backend() == "cpu":
            jax.block_until_ready(out)
    jax.block_until_ready(out)
    return (time.perf_counter() - begin) / calls


@dataclasses.dataclass(frozen=True)
class Row:
    """What was found of one function on one kind of mesh; seconds a call."""

    case: str
    what: str
    axes: str
    one: float
    all: float
    faults: tuple[str, ...]

    @property
    def efficiency(self) -> float:
        """1 where the devices lose nothing."""
        return self.one / self.all


def measure(case: Case, what: str, axes: str, devices: Sequence[jax.Device], samples: int) -> Row:
    """One function of a case on a mesh of such axes."""
    mesh = Mesh(np.asarray(devices), ("data",), axis_types=(KINDS[axes],))
    function = functions(case)[what]
    by_rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    mine = jax.device_put((share(case, len(devices)), case.whole), devices[0])
    split = {n: jax.device_put(v, by_rows) for n, v in case.split.items()}
    ours = split, jax.device_put(case.whole, everywhere)
    alone = jax.jit(function).lower(*mine).compile()
    with jax.set_mesh(mesh):
        together = jax.jit(function).lower(*ours).compile()
    faults = [] if "all-gather" not in together.as_text() else ["gathers"]
    got, want = together(*ours), alone(*mine)
    named = got if isinstance(got, dict) else {"result": got}
    expected = want if isinstance(want, dict) else {"result": want}
    for name, value in named.items():
        if name in case.whole:
            continue  # summed over the shares of all devices
        if not value.sharding.is_equivalent_to(by_rows, value.ndim):
            faults.append(f"{name} is {value.sharding}")
        first = np.asarray(value.addressable_shards[0].data, np.float32)
        other = np.asarray(expected[name], np.float32)
        error = np.abs(first - other).max() / max(np.abs(other).max(), 1e-30)
        if not error <= TOLERANCE:
            faults.append(f"{name} differs by {error:.1e}")
    calls = max(3, int(0.05 / max(timed(lambda: alone(*mine), 3), 1e-5)))
    pairs = [
        (timed(lambda: alone(*mine), calls), timed(lambda: together(*ours), calls))
        for _ in range(samples)
    ]
    one, both = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(case.name, what, axes, one, both, tuple(faults))


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as Markdown."""
    lines = [
        "| operation | | axes | one device, us | all, us | efficiency | faults |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        times = f"{r.one * 1e6:.0f} | {r.all * 1e6:.0f} | {r.efficiency:.3f}"
        lines.append(f"| {r.case} | {r.what} | {r.axes} | {times} | {'; '.join(r.faults)} |")
    return lines


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--op", action="append", help="repeatable; default: all")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--out", type=Path, help="the table as Markdown, with provenance")
    given = parser.parse_args()
    devices = jax.devices()
    if len(devices) < 2:
        parser.error("needs two devices; this machine has one")
    makers = cases(len(devices), given.quick)
    if unknown := set(given.op or ()) - makers.keys():
        parser.error(f"--op {', '.join(unknown)} is not one of {', '.join(makers)}")
    rows: list[Row] = []
    console = Console(width=150)
    for name in track(given.op or list(makers), "operations", console=console, transient=True):
        case = makers[name]()
        for what in functions(case):
            rows += [measure(case, what, axes, devices, given.samples) for axes in KINDS]
    source = provenance(command_line())
    heading = ["# Operations on a mesh", "", *(f"- {line}" for line in source.lines())]
    lines = [*heading, f"- Devices: {len(devices)}", "", *table(rows), ""]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    if given.out:
        given.out.write_text("\n".join(lines))
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
