"""Iterative magnitude pruning: train an MLP on digits while its hidden weights lose block after
block, with blocks of 32x64 and of 32x1.

The mask changes every few steps (`--every`); both passes are masked products, and the weights'
gradient is computed at the kept blocks only. It is compared with XLA's dense products of the masked
weights, with the same masks. MNIST where JAXSPARSE_DATA is set, scikit-learn's digits elsewhere.
`python examples/sparse_training.py [--quick] [--every N] [--steps-only [--unsaid]]
[--out DIR]`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sparse_mlp import Digits, load

from models.common import carried, parser, print_table, progress, save, time_together
from models.sparse_training import (
    Block,
    Layer,
    Way,
    forward,
    hidden_masks,
    initial,
    train_step,
)

BLOCKS: tuple[Block, ...] = ((32, 64), (32, 1))
FORMS = ("multiplied", "sparse")
SPARSITIES = (0.5, 0.7, 0.9, 0.95)
FINAL, BATCH, RATE = 0.9, 128, 0.05
STEPS_IN_A_ROW = 10  # of a timing: a step is not waited for while the next one can start
Times = dict[tuple[Block, float], dict[str, float]]


class Result(NamedTuple):
    """What the demo found.

    Accuracies by block and form; kept shares by block; milliseconds of a step by block, sparsity
    and form; the picture.
    """

    accuracy: dict[Block, dict[str, float]]
    kept: dict[Block, float]
    milliseconds: Times
    picture: Path


def schedule(step: int, steps: int) -> float:
    """Sparsity at a step: a cubic rise to FINAL over the first 70 %."""
    return FINAL * (1 - (1 - min(step / (0.7 * steps), 1.0)) ** 3)


def density_at(sparsity: float) -> float:
    """The share of blocks that a schedule keeps, up to the next quarter: what a step is compiled
    for.
    """
    return math.ceil(4 * (1 - sparsity)) / 4


def way_at(block: Block, form: str, sparsity: float) -> Way:
    """How a step of a schedule multiplies; the dense form is the same one at every sparsity."""
    return Way(block, form, density_at(sparsity) if form == "sparse" else None)


@functools.cache
def jitted(way: Way) -> tuple[Any, Any, Any]:
    """(step, masks of a state, logits of parameters, masks and images), jitted."""
    step = jax.jit(functools.partial(train_step, way=way), donate_argnums=0)
    masks = jax.jit(functools.partial(hidden_masks, block=way.block))
    return step, masks, jax.jit(functools.partial(forward, way=way))


def start(widths: tuple[int, ...]) -> tuple[list[Layer], list[Layer]]:
    """Parameters, and velocities of zero."""
    params = initial(widths)
    return params, jax.tree.map(jnp.zeros_like, params)


def train(
    digits: Digits, widths: tuple[int, ...], block: Block, form: str, steps: int, every: int
) -> tuple[float, float, list[float]]:
    """(test accuracy, share of hidden blocks kept, sparsity at each step)."""
    _, masks_of, logits = jitted(Way(block, form))
    state, rng = start(widths), np.random.default_rng(1)
    masks: list[jax.Array] = []
    found = []
    with progress() as bar:
        task = bar.add_task(f"{block[0]}x{block[1]} {form}", total=steps)
        for i in range(steps):
            if i % every == 0:
                masks = masks_of(state[0], jnp.float32(schedule(i, steps)))
            found.append(schedule(i - i % every, steps))
            pick = rng.integers(0, len(digits.train_x), BATCH)
            rate = jnp.float32(RATE * min(1.0, 2 * (1 - i / steps)))
            x, y = digits.train_x[pick], digits.train_y[pick].astype(np.int32)
            step = jitted(way_at(block, form, found[-1]))[0]
            state = step(state, masks, jnp.asarray(x), jnp.asarray(y), rate)
            bar.advance(task)
    scores = logits(state[0], masks, jnp.asarray(digits.test_x))
    kept = float(np.mean([np.asarray(m).mean() for m in masks]))
    return float((np.argmax(scores, -1) == digits.test_y).mean()), kept, found


def step_times(
    params: list[Layer], batch: int, block: Block, sparsity: float, repeats: int, said: bool
) -> dict[str, float]:
    """Milliseconds of a step in both forms, and of making its masks ("mask"), in a row of them.
    `said`: a step is compiled for the share that the sparsity keeps.
    """
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random((batch, params[0].w.shape[1]), np.float32))
    y = jnp.asarray(rng.integers(0, len(params[-1].b), batch), jnp.int32)
    share = jnp.float32(sparsity)
    density = 1 - sparsity if said else None
    ways = {form: jitted(Way(block, form, density)) for form in FORMS}
    masks_of = ways["sparse"][1]
    masks = masks_of(params, share)

    def state() -> tuple[Any, Any]:
        return jax.tree.map(jnp.copy, params), jax.tree.map(jnp.zeros_like, params)

    def in_a_row(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [call() for _ in range(STEPS_IN_A_ROW)][-1]

    calls = {
        form: in_a_row(carried(ways[form][0], state(), masks, x, y, jnp.float32(1e-3)))
        for form in FORMS
    }
    calls["mask"] = in_a_row(lambda: masks_of(params, share))
    return {name: t / STEPS_IN_A_ROW for name, t in time_together(calls, repeats).items()}


def time_steps(quick: bool, said: bool = True) -> Times:
    """Time a step of a wide network for every block and sparsity, and print a table. `said`: as in
    `step_times`.
    """
    gpu = jax.default_backend() == "gpu"
    size, batch = (512, 128) if quick else (4096, 2048) if gpu else (2048, 512)
    params = initial((256, size, size, size, 10))
    times: Times = {}
    with progress() as bar:
        task = bar.add_task("timing a step", total=len(BLOCKS) * len(SPARSITIES))
        for block, sparsity in itertools.product(BLOCKS, SPARSITIES):
            times[block, sparsity] = step_times(params, batch, block, sparsity, 5, said)
            bar.advance(task)
    rows = [
        [
            f"{block[0]}x{block[1]}",
            f"{sparsity:g}",
            *(f"{t[form]:.2f}" for form in FORMS),
            f"{t['multiplied'] / t['sparse']:.2f}x",
            f"{t['mask']:.2f}",
        ]
        for (block, sparsity), t in times.items()
    ]
    title = f"a training step, two hidden {size}x{size}, batch {batch}"
    columns = ("block", "sparsity", "masked dense\n[ms]", "jaxsparse\n[ms]", "speed-up")
    print_table(title, (*columns, "new mask\n[ms]"), rows)
    return times


def run(quick: bool, out: Path, every: int = 1) -> Result:
    """Train both forms at both granularities, time their steps, print two tables and save a
    picture.

    Raises:
        AssertionError: when the accuracies of the two forms differ by more than two percent.
    """
    digits = load(quick)
    inner, steps = (256, 150) if quick else (512, 800)
    widths = (digits.train_x.shape[1], inner, inner, inner, 10)
    accuracy, kept, curve = {}, {}, []
    for block in BLOCKS:
        accuracy[block] = {}
        for form in FORMS:
            accuracy[block][form], kept[block], curve = train(
                digits, widths, block, form, steps, every
            )
        assert abs(accuracy[block]["sparse"] - accuracy[block]["multiplied"]) <= 0.02
    rows = [
        [f"{b[0]}x{b[1]}", f"{1 - kept[b]:.3f}", *(f"{100 * accuracy[b][f]:.2f} %" for f in FORMS)]
        for b in BLOCKS
    ]
    title = f"{digits.name}, MLP {'-'.join(map(str, widths))}, a new mask every {every} steps"
    print_table(title, ("block", "sparsity", "masked dense", "jaxsparse"), rows)
    times = time_steps(quick)
    return Result(accuracy, kept, times, draw(curve, times, out))


def draw(curve: list[float], times: Times, out: Path) -> Path:
    """Sparsity over the steps, and the speed-up of a step over sparsity."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(curve)
    left.set(xlabel="step", ylabel="sparsity of the hidden weights", title="pruning while training")
    for block in BLOCKS:
        ratios = [times[block, s]["multiplied"] / times[block, s]["sparse"] for s in SPARSITIES]
        right.plot(SPARSITIES, ratios, marker="o", label=f"{block[0]}x{block[1]}")
    right.axhline(1.0, color="black", linewidth=0.8)
    right.set(
        xlabel="sparsity", ylabel="times faster than masked dense", title="a step, both passes"
    )
    right.legend()
    return save(figure, out, "sparse_training.png")


def main(argv: Sequence[str] | None = None) -> Result | Times:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--every", type=int, default=1, help="steps that share a mask")
    command.add_argument("--steps-only", action="store_true", help="time steps, train nothing")
    command.add_argument(
        "--unsaid", action="store_true", help="do not say what share a timed step keeps"
    )
    chosen = command.parse_args(argv)
    if chosen.steps_only:
        return time_steps(chosen.quick, not chosen.unsaid)
    return run(chosen.quick, chosen.out, chosen.every)


if __name__ == "__main__":
    main()
