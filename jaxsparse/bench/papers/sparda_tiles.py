"""SparDA's Table 2: the tile that the cover cost of a mask chooses (Algorithm 2), for a sample of
masks, among all tiles that `masked_matmul` has here for blocks of one column.

A strip of r rows multiplies each column that one of its rows keeps: a data tile of r x 1. The dense
product is a strip of all rows. Costs are measured with nothing masked.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.papers.exhibit import Figure, Setting
from jaxsparse.ops import masked_matmul
from jaxsparse.select.config import config
from jaxsparse.select.table import DENSE
from jaxsparse.select.variants import table

#: (rows of a block, percent left out) -> the paper's data tile, the percent that its tiles leave
#: out, and milliseconds.
REPORTED = {
    (2, 95): ("16x1", 66.39, 8.04),
    (2, 99): ("8x1", 96.06, 2.34),
    (4, 95): ("16x1", 81.45, 4.29),
    (4, 99): ("16x1", 96.05, 1.37),
    (8, 95): ("8x1", 95.0, 2.34),
    (8, 99): ("32x1", 96.02, 0.90),
    (32, 95): ("32x1", 95.0, 0.94),
    (32, 99): ("32x1", 99.0, 0.39),
}
#: Rows of the data tiles on a GPU; on a CPU the variants' table has them.
GPU_ROWS = {"sorted": 32, "wide": 64, "tall": 128}
#: The variant that runs only blocks of whole pieces of rows, and the rows of a piece.
PIECES, PIECE_ROWS = "sorted", 32
SAMPLES = 3
DEFAULT = "default"


class Strip(NamedTuple):
    """A variant, the rows of its strips, and the milliseconds of one column of one strip."""

    name: str
    rows: int
    cost: float


def cover(mask: np.ndarray, block_rows: int, rows: int) -> int:
    """How many columns the strips of `rows` rows need together to cover a mask bool[blocks,
    columns] of blocks of block_rows x 1.
    """
    total, height = 0, len(mask) * block_rows
    for first in range(0, height, rows):
        last = min(first + rows, height) - 1
        total += int(mask[first // block_rows : last // block_rows + 1].any(axis=0).sum())
    return total


def least_cover(samples: Sequence[np.ndarray], strips: Sequence[Strip], block_rows: int) -> Strip:
    """The strip whose cover of all samples costs least; the first of equal ones."""

    def cost(strip: Strip) -> float:
        return strip.cost * sum(cover(mask, block_rows, strip.rows) for mask in samples)

    return min(strips, key=cost)


def table_2(setting: Setting) -> Iterator[Figure]:
    """The chosen tile by granularity and share of zeros, and the tile that is the fastest."""
    size = 4096 if setting.full and setting.gpu else 1024
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal((size, size)), jnp.float32) for _ in "ab")
    heights = {**strip_rows(setting.gpu), DENSE: size}
    setting.on_step("the cost of each tile")
    full = np.ones((size // 32, size), bool)
    whole = timed({name: product(name, a, b, full, 32) for name in heights}, setting.plan.samples)
    every = [Strip(n, r, whole[n] / cover(full, 32, r)) for n, r in heights.items()]
    for (block_rows, zeros), (theirs, after, reported) in REPORTED.items():
        case = f"({block_rows},1), {zeros} %"
        setting.on_step(case)
        shape = size // block_rows, size
        samples = [rng.random(shape) >= zeros / 100 for _ in range(SAMPLES)]
        strips = [s for s in every if s.name != PIECES or block_rows % PIECE_ROWS == 0]
        chosen = least_cover(samples, strips, block_rows)
        start = time.perf_counter()
        least_cover(samples[:1], strips, block_rows)
        search = 1e3 * (time.perf_counter() - start)
        named = {DEFAULT: None, **{s.name: s.name for s in strips}}
        calls = {name: product(v, a, b, samples[0], block_rows) for name, v in named.items()}
        entries = np.repeat(samples[0], block_rows, 0)
        want = np.where(entries, np.asarray(a), 0).astype(np.float64) @ np.asarray(b, np.float64)
        limit = (3e-2 if setting.gpu else 1e-5) * np.abs(want).max()
        right = all(np.abs(np.asarray(call()) - want).max() <= limit for call in calls.values())
        times = timed(calls, setting.plan.samples)
        covered = cover(samples[0], block_rows, chosen.rows) * chosen.rows / size**2
        best = min((s.name for s in strips), key=lambda name: times[name])
        tile = DENSE if chosen.name == DENSE else f"{chosen.rows}x1 ({chosen.name})"
        here = (
            f"{tile}, {100 * (1 - covered):.2f} %, {times[chosen.name]:.2f} ms; fastest: {best}, "
            f"{times[best]:.2f} ms; default {times[DEFAULT]:.2f} ms; search {search:.1f} ms"
        )
        yield Figure(case, f"{theirs}, {after:.2f} %, {reported:.2f} ms", here, correct=right)


def strip_rows(gpu: bool) -> Mapping[str, int]:
    """Variant -> rows of its strips."""
    if gpu:
        return GPU_ROWS
    variants = table("masked_matmul", "cpu")
    return {name: v.fields["tile32"][0] for name, v in variants.items() if name != "auto"}


def product(
    variant: str | None, a: jax.Array, b: jax.Array, mask: np.ndarray, block_rows: int
) -> Callable[[], jax.Array]:
    """A call of one variant, compiled; None is the default."""
    given = jnp.asarray(mask)

    def multiply(a: jax.Array, b: jax.Array, mask: jax.Array) -> jax.Array:
        with config(variant=variant):
            return masked_matmul(a, b, a_mask=mask, granularity=(block_rows, 1))

    return functools.partial(jax.jit(multiply), a, b, given)


def timed(calls: Mapping[str, Callable[[], jax.Array]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each call, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call().block_until_ready()
            if round_:
                taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in taken.items()}
