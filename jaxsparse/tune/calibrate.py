"""What `jaxsparse calibrate` measures: the rates of this machine's device, with XLA's own
operations, and how much longer than these rates predict the variants of `masked_conv` take.

The time of a step is the difference between a long and a short chain, divided by the difference in
steps, so that costs paid once per chain cancel.
"""

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from jaxsparse.core.device import cores, device_kind, home_platform
from jaxsparse.index import tile_index
from jaxsparse.ops import masked_conv
from jaxsparse.select import config
from jaxsparse.select.masked_conv.cost import Work, candidate
from jaxsparse.select.masked_conv.estimate import table_of
from jaxsparse.select.masked_conv.reasons import half_empty
from jaxsparse.select.roofline.machine import Machine
from jaxsparse.select.table import TuningTable
from jaxsparse.select.variants import table
from jaxsparse.testing import make_masks

#: Steps of the short and the long chain: of rates, then of convolutions (calls in one program).
SHORT, LONG, FEW, MANY = 8, 40, 2, 8
#: The convolutions that are timed: (side of the image, channels in and out), then images per call
#: and the share of active pixels.
CONVOLUTIONS = ((48, 64), (64, 128), (40, 256))
BATCH, DENSITY = 8, 0.4


class Sizes(NamedTuple):
    """float32 elements of the array copied in memory and of the one copied in the shared cache, and
    rows of the square matrices.
    """

    memory: int
    cache: int
    side: int


GPU, CPU = Sizes(1 << 27, 1 << 22, 8192), Sizes(1 << 25, 1 << 17, 1024)


class Clock(Protocol):
    """Times one run of a chain."""

    def seconds(self, what: str, steps: int) -> float:
        """The time of `steps` steps of `what`: "launch", "copy", "l2", "half", "tf32", or a variant
        as "dtype/side/channels/name".
        """
        ...


class Figure(NamedTuple):
    """One thing to measure. `amount`: bytes or multiply-adds of a step; `short` and `long`: steps
    of the two chains.
    """

    what: str
    amount: float
    short: int = SHORT
    long: int = LONG


def figures(sizes: Sizes) -> list[Figure]:
    """The rates to measure. A step of a copy reads an array and writes it."""
    macs = float(sizes.side) ** 3
    copies = [Figure("copy", 8.0 * sizes.memory), Figure("l2", 8.0 * sizes.cache)]
    return [Figure("launch", 1.0), *copies, Figure("half", macs), Figure("tf32", macs)]


def step_us(clock: Clock, figure: Figure, samples: int) -> float:
    """Microseconds of a step, from the medians of `samples` runs of each chain, in turns."""
    short, long = [], []
    for _ in range(samples):
        short.append(clock.seconds(figure.what, figure.short))
        long.append(clock.seconds(figure.what, figure.long))
    took = (np.median(long) - np.median(short)) / (figure.long - figure.short)
    return 1e6 * max(float(took), 1e-12)


def calibrate(
    clock: Clock,
    device: str,
    processors: int,
    sizes: Sizes,
    *,
    variants: Callable[[Machine], Mapping[str, float]] = lambda machine: {},
    budget: float = 300.0,
    samples: int = 5,
    on_step: Callable[[str], None] = lambda what: None,
    now: Callable[[], float] = time.monotonic,
) -> Machine:
    """Measure a device.

    Args:
        clock: times the chains.
        device: its kind, as JAX names it.
        processors: multiprocessors of a GPU, cores of a CPU.
        sizes: of the arrays.
        variants: machine -> the expected microseconds of each variant on a few calls, by the
            clock's names.
        budget: seconds after which the measurement of another variant is not started.
        samples: runs of each chain.
        on_step: called with the name of what is measured next.
        now: the time in seconds.

    Returns:
        The machine with its rates, and for each variant measured the factor between its time and
        the expected one.
    """
    begin, us = now(), {}
    for figure in figures(sizes):
        on_step(figure.what)
        us[figure.what] = step_us(clock, figure, samples)
    launch = us["launch"]
    rate: dict[str, float] = {}
    for figure in figures(sizes)[1:]:
        # A copy in the cache is short: what a launch takes is subtracted.
        took = us[figure.what] - (launch if figure.what == "l2" else 0.0)
        rate[figure.what] = figure.amount / max(took, 0.1 * us[figure.what])
    said = f"calibrated {time.strftime('%Y-%m-%d')}"
    copy, l2, half, tf32 = (rate[name] for name in ("copy", "l2", "half", "tf32"))
    machine = Machine(device, processors, copy, l2, half, tf32, launch, said, own=True)
    found: dict[tuple[str, str], list[float]] = {}
    for name, expected in variants(machine).items():
        if now() - begin > budget:
            break
        on_step(name)
        dtype, *_, variant = name.split("/")
        took = step_us(clock, Figure(name, 1.0, FEW, MANY), samples)
        found.setdefault((dtype, variant), []).append(took / expected)
    ratios = ((*key, math.exp(np.mean(np.log(each)))) for key, each in found.items())
    rows = tuple((dtype, variant, round(times, 3)) for dtype, variant, times in ratios)
    return msgspec.structs.replace(machine, variants=rows)


def expected_variants(machine: Machine, tuning: TuningTable) -> dict[str, float]:
    """The microseconds that `tuning` predicts for the variants of `masked_conv` on a few calls, by
    the clock's names.
    """
    found = {}
    for dtype in ("bfloat16", "float32"):
        for side, channels in CONVOLUTIONS:
            work = Work(9, channels, channels, 4 if dtype == "float32" else 2, BATCH * side**2, 1)
            rates = tuning.rates_of("masked_conv", dtype, work.shape)
            for name, row in table("masked_conv", "cuda").items():
                if name not in rates or half_empty(row, channels):
                    continue
                tile = 8 if row.fields["box"] else 1
                count = int(drawn(side, tile).sum())
                one = candidate(row, rates[name], work, tile * tile, machine.processors)
                found[f"{dtype}/{side}/{channels}/{name}"] = one.at(count)
    return found


@functools.lru_cache(maxsize=64)
def mask_of(side: int) -> np.ndarray:
    """The mask of the convolutions of this side: bool[B, side, side]."""
    return make_masks("blobs", (BATCH, side, side), DENSITY)[0]


def drawn(side: int, tile: int) -> np.ndarray:
    """bool[B, side / tile, side / tile]: the active tiles of that mask."""
    parts = mask_of(side).reshape(BATCH, side // tile, tile, side // tile, tile)
    return np.asarray(parts.any((2, 4)))


class DeviceClock:
    """Chains on JAX's default device. The steps of a chain depend on one another; convolutions are
    calls on inputs of their own in one program.
    """

    def __init__(self, sizes: Sizes):
        self._sizes = sizes
        self._made: dict[tuple[str, int], tuple[Callable[..., Any], Any]] = {}

    def seconds(self, what: str, steps: int) -> float:
        """Time one run."""
        if (what, steps) not in self._made:
            self._made = {k: v for k, v in self._made.items() if k[0] == what}  # free the others
            run, x = self._convolutions(what, steps) if "/" in what else self._chain(what, steps)
            jax.block_until_ready(run(x))
            self._made[what, steps] = run, x
        run, x = self._made[what, steps]
        begin = time.perf_counter()
        jax.block_until_ready(run(x))
        return time.perf_counter() - begin

    def _chain(self, what: str, steps: int) -> tuple[Callable[..., Any], Any]:
        if what in ("half", "tf32"):
            kind = jnp.float32 if what == "tf32" or home_platform() == "cpu" else jnp.bfloat16
            x = jax.random.normal(jax.random.key(0), (self._sizes.side,) * 2, jnp.float32)
            x = (x / math.sqrt(self._sizes.side)).astype(kind)

            def step(i: Any, v: jax.Array) -> jax.Array:
                return jnp.dot(v, x)

        else:
            elements = {"launch": 1, "copy": self._sizes.memory, "l2": self._sizes.cache}[what]
            x = jnp.zeros(elements, jnp.float32)

            def step(i: Any, v: jax.Array) -> jax.Array:
                return v + jnp.float32(1)

        return jax.jit(lambda v: jax.lax.fori_loop(0, steps, step, v)), x

    def _convolutions(self, what: str, steps: int) -> tuple[Callable[..., Any], Any]:
        dtype, side, channels, variant = what.split("/")
        tile = 8 if table("masked_conv", "cuda")[variant].fields["box"] else 1
        shape = BATCH, int(side), int(side), int(channels)
        xs = [jax.random.normal(jax.random.key(i), shape).astype(dtype) for i in range(steps)]
        kernel = jnp.full((3, 3, shape[3], shape[3]), 0.01, dtype)
        index = jax.jit(lambda m: tile_index(m, (tile, tile)))(jnp.asarray(mask_of(shape[1])))

        def run(inputs: list[jax.Array]) -> list[jax.Array]:
            with config(variant=variant):
                return [masked_conv(x, kernel, index) for x in inputs]

        return jax.jit(run), xs


def this_machine(budget: float, on_step: Callable[[str], None]) -> Machine:
    """Measure this machine's default device; variants only until `budget` seconds have passed."""
    platform = home_platform()
    device = device_kind(platform)
    if platform == "cpu":
        return calibrate(DeviceClock(CPU), device, cores(), CPU, budget=budget, on_step=on_step)
    gpu = jax.devices("cuda")[0]

    def variants(machine: Machine) -> Mapping[str, float]:
        return expected_variants(machine, table_of(gpu.compute_capability, machine))

    processors = gpu.core_count
    return calibrate(
        DeviceClock(GPU), device, processors, GPU, variants=variants, budget=budget, on_step=on_step
    )


def steps_of(platform: str) -> Iterator[str]:
    """The names of what may be measured at most: the length of a progress bar."""
    yield from (figure.what for figure in figures(CPU if platform == "cpu" else GPU))
    if platform == "cuda":
        for _ in ("bfloat16", "float32"):
            for _ in CONVOLUTIONS:
                yield from table("masked_conv", "cuda")
