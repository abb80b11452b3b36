"""`js.ring_attention` on all devices beside `js.sparse_attention` of the whole sequence on one.

    python benchmarks/sparse_attention/ring.py [--quick] [--tokens 65536] [--devices N]
        [--mask NAME] [--samples 9] [--out FILE.md]

Efficiency is the time of one device over N times that of N devices: 1 is ideal. Both are timed in
turns, forward and with the gradients of q, k and v, in bfloat16. Memory is what
XLA reserves beside operands and results. It checks that nothing is gathered, and that results and
gradients agree; exits with 1 where they do not. Needs two devices;
XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two of a CPU, which share its cores.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console
from rich.progress import track

import jaxsparse as js
from jaxsparse.bench.report.provenance import command_line, provenance

#: Of results in bfloat16, relative to the largest.
TOLERANCE = 2e-2
BY_TOKENS = P(None, "seq")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """q, k and v of [1, tokens, heads, depth], in blocks of `block`, over `devices`."""

    tokens: int
    heads: int
    depth: int
    block: int
    devices: int

    @property
    def blocks(self) -> int:
        """Blocks of the sequence."""
        return self.tokens // self.block


@dataclasses.dataclass(frozen=True)
class Case:
    """A mask, and the order of the blocks of tokens in which the devices hold them."""

    mask: js.BlockMask
    order: np.ndarray


def cases(sizes: Sizes) -> dict[str, Callable[[], Case]]:
    """Name -> a function that makes the case."""
    blocks, devices = sizes.blocks, sizes.devices
    plain = np.arange(blocks)
    chunks = plain.reshape(2 * devices, -1)
    balanced = np.stack([chunks[:devices], chunks[: devices - 1 : -1]], 1).reshape(-1)

    def causal() -> js.BlockMask:
        return js.block_masks.causal(sizes.tokens, block_size=sizes.block)

    def window() -> js.BlockMask:
        left = sizes.tokens // 16
        return js.block_masks.sliding_window(sizes.tokens, block_size=sizes.block, left=left)

    def documents() -> js.BlockMask:
        """As many as there are devices: nothing to compute but in the first step."""
        edges = np.arange(devices + 1) * (sizes.tokens // devices)
        return js.block_masks.document(edges, sizes.tokens, sizes.block)

    def random(share: float) -> js.BlockMask:
        bits = np.random.default_rng(0).random((1, 1, blocks, blocks)) < share
        return js.BlockMask.from_block_bits(bits, sizes.block, sizes.tokens, sizes.tokens)

    return {
        "full": lambda: Case(random(1.0), plain),
        "25 % of the blocks": lambda: Case(random(0.25), plain),
        "causal": lambda: Case(causal(), plain),
        "causal, equal work": lambda: Case(causal(), balanced),
        "window": lambda: Case(window(), plain),
        "a document a device": lambda: Case(documents(), plain),
    }


def functions(attend: Callable[..., jax.Array]) -> dict[str, Callable[..., Any]]:
    """Name -> the forward function, and the gradients of the sum of its squares."""

    def loss(q: jax.Array, k: jax.Array, v: jax.Array, mask: js.BlockMask) -> jax.Array:
        return jnp.sum(attend(q, k, v, mask).astype(jnp.float32) ** 2)

    return {
        "forward": lambda *given: (attend(*given),),
        "gradient": jax.grad(loss, (0, 1, 2)),
    }


def timed(run: Callable[[], Any], calls: int) -> float:
    """Seconds a call, of `calls` that are all in flight; on a CPU one after the other."""
    begin, out = time.perf_counter(), None
    for _ in range(calls):
        out = run()
        if jax.default_backend() == "cpu":
            jax.block_until_ready(out)
    jax.block_until_ready(out)
    return (time.perf_counter() - begin) / calls


@dataclasses.dataclass(frozen=True)
class Row:
    """Seconds and temporary bytes: of one device, and of each of all devices; and faults."""

    seconds: tuple[float, float]
    held: tuple[int, int]
    faults: tuple[str, ...]

    def cells(self, devices: int) -> str:
        """The cells of the table."""
        (one, both), (alone, each) = self.seconds, self.held
        times = f"{one * 1e3:.3f} | {both * 1e3:.3f} | {one / (devices * both):.3f}"
        return f"{times} | {alone / 1e6:.1f} | {each / 1e6:.1f} | {'; '.join(self.faults)}"


def measure(case: Case, what: str, sizes: Sizes, samples: int) -> Row:
    """One function of a case."""
    devices = jax.devices()[: sizes.devices]
    mesh = jax.make_mesh((sizes.devices,), ("seq",), (AxisType.Auto,), devices=devices)
    rng = np.random.default_rng(0)
    shape = (1, sizes.tokens, sizes.heads, sizes.depth)
    tokens = [rng.standard_normal(shape, np.float32).astype(jnp.bfloat16) for _ in "qkv"]
    at = (case.order[:, None] * sizes.block + np.arange(sizes.block)).reshape(-1)
    taken = case.mask.take(q_blocks=case.order, kv_blocks=case.order)
    ring = jax.shard_map(
        lambda q, k, v, mask: js.ring_attention(q, k, v, mask, "seq"),
        mesh=mesh,
        in_specs=(BY_TOKENS, BY_TOKENS, BY_TOKENS, P()),
        out_specs=BY_TOKENS,
    )
    mine = jax.device_put((*tokens, case.mask), devices[0])
    ours = (
        *(jax.device_put(x[:, at], NamedSharding(mesh, BY_TOKENS)) for x in tokens),
        jax.device_put(taken, NamedSharding(mesh, P())),
    )
    alone = jax.jit(functions(js.sparse_attention)[what]).lower(*mine).compile()
    together = jax.jit(functions(ring)[what]).lower(*ours).compile()
    faults = [] if "all-gather" not in together.as_text() else ["gathers"]
    for name, one, other in zip("qkv", alone(*mine), together(*ours), strict=False):
        want, got = (np.asarray(x, np.float32) for x in (one, other))
        error = np.abs(got - want[:, at]).max() / max(np.abs(want).max(), 1e-30)
        if not error <= TOLERANCE:
            faults.append(f"{what} {name} differs by {error:.1e}")
    calls = max(3, int(0.05 / max(timed(lambda: alone(*mine), 2), 1e-5)))
    pairs = [
        (timed(lambda: alone(*mine), calls), timed(lambda: together(*ours), calls))
        for _ in range(samples)
    ]
    one, both = (statistics.median(side) for side in zip(*pairs, strict=True))
    held = (f.memory_analysis().temp_size_in_bytes for f in (alone, together))
    return Row((one, both), (next(held), next(held)), tuple(faults))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--tokens", type=int, help="of the whole sequence")
    parser.add_argument("--devices", type=int, help="default: all")
    parser.add_argument("--mask", action="append", help="repeatable; default: all")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--out", type=Path, help="the table as Markdown, with provenance")
    given = parser.parse_args()
    devices = given.devices or jax.device_count()
    if not 2 <= devices <= jax.device_count():
        parser.error(f"needs two devices or more; this machine has {jax.device_count()}")
    tokens, heads, depth = (2048, 4, 64) if given.quick else (65536, 16, 128)
    block = 32 if given.quick else 128
    sizes = Sizes(given.tokens or tokens, heads, depth, block, devices)
    if sizes.tokens % (2 * devices * block):
        parser.error(f"--tokens {sizes.tokens} is not a multiple of {2 * devices} * {block}")
    makers = cases(sizes)
    if unknown := set(given.mask or ()) - makers.keys():
        parser.error(f"--mask {', '.join(unknown)} is not one of {', '.join(makers)}")
    lines = [
        "| mask | blocks kept | | one device, ms | all, ms | efficiency "
        "| one device, MB | each, MB | faults |",
        "|---" * 9 + "|",
    ]
    wrong, console = False, Console(width=150)
    for name in track(given.mask or list(makers), "masks", console=console, transient=True):
        case = makers[name]()
        kept = 1 - float(case.mask.sparsity())
        for what in ("forward", "gradient"):
            row = measure(case, what, sizes, given.samples)
            wrong |= bool(row.faults)
            lines.append(f"| {name} | {kept:.1%} | {what} | {row.cells(devices)} |")
    source = provenance(command_line())
    heading = ["# Attention around a ring of devices", "", *(f"- {x}" for x in source.lines())]
    about = f"{sizes.tokens} tokens, {heads} heads of {depth}, blocks of {block}, bfloat16"
    heading += [f"- Devices: {devices}; {about}", ""]
    console.print("\n".join([*heading, *lines]), highlight=False, soft_wrap=True)
    if given.out:
        given.out.write_text("\n".join([*heading, *lines, ""]))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
