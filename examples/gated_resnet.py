"""ResNet-50 and -101 whose blocks compute only where their gates are open (DynConv), and a
ResNet-20 with trained gates for digits on photographs, in float32 and in few bits.

The large networks have random weights and 224x224 images. Their masks are drawn at random: smooth
regions of .1, .3 and .5 of each block's pixels. Their gates are computed, but do not decide the
masks. The small network is trained dense first. Its gates are trained from there, with a penalty
that pulls the share of open pixels to a target. Two networks whose values are rounded to 8 and to 4
bits start from the gated one; 4 bits need further training. For comparison the dense network is
trained for as many further steps as the gates.
`python examples/gated_resnet.py [--quick | --full] [--depths 50 101] [--batch N ...]
[--dtype bfloat16] [--tests N] [--train] [--out DIR]`. `--full` is for a GPU: both depths, batch 1,
8 and 64. The weights in the repository come from `--train` on MNIST; set JAXSPARSE_DATA to a folder
with MNIST to test on it, too.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import models.gated_resnet as model
from models.canvases import Canvases
from models.common import (
    console,
    grid_figure,
    overlay,
    parser,
    peak_of,
    print_table,
    save,
    time_together,
    working,
)
from models.gated_resnet import FORMS, Config
from models.resnet20.evaluation import BATCH, Seen, Shown, evaluate
from models.resnet20.network import SIDE, WEIGHTS, load, store, trained

DENSITIES = (0.1, 0.3, 0.5)
#: Canvases of a thousand that the masked forms may classify differently. Rounding to few bits turns
#: differences of 1e-7 into steps.
DIFFERENT = {"float32": 0, "int8": 1, "int4": 1}
#: Of the largest logit, between the masked forms.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}
LEGEND = (
    "open: of a block's pixels; dense has no gates, multiplied and sparse compute them. MB: "
    "parameters, images, results and what XLA allocates between. Times are medians of calls of the "
    "three forms in turns."
)
SMALL_LEGEND = (
    "points: gated minus dense, in percent of the canvases, and the standard error of this "
    "difference. moved: pixels whose gate is not as in float32. dense [ms]: the same network with "
    "every gate open."
)


class Row(NamedTuple):
    """One network at one density: milliseconds and MB by form, and the largest difference of a
    logit between the masked forms over the largest logit.
    """

    network: str
    batch: int
    density: float
    times: dict[str, float]
    memory: dict[str, float]
    error: float


class Result(NamedTuple):
    """The small networks on their test canvases, the table's rows, the picture."""

    seen: Seen
    rows: list[Row]
    picture: Path


def measure(config: Config, batch: int, dtype: str, repeats: int) -> list[Row]:
    """Rows of one network, at each density.

    Raises:
        AssertionError: when the masked forms differ.
    """
    params = jax.tree.map(lambda v: v.astype(dtype), model.initial(config))
    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.random((batch, config.side, config.side, 3)), dtype)
    rows, compiled = [], {}
    for density in DENSITIES:
        masks = [jnp.asarray(m) for m in model.drawn_masks(config, batch, density)]
        args = params, images, masks
        if not compiled:
            forms = {form: jax.jit(functools.partial(model.run, config, form)) for form in FORMS}
            compiled = {form: call.lower(*args).compile() for form, call in forms.items()}
        calls = {form: functools.partial(call, *args) for form, call in compiled.items()}
        want, got = (calls[f]().logits.astype(jnp.float32) for f in ("multiplied", "sparse"))
        error = float(jnp.abs(got - want).max() / jnp.abs(want).max())
        assert error <= TOLERANCE[dtype], f"{config.name}, {density}: logits differ by {error:.1e}"
        times = time_together(calls, repeats)
        memory = {form: peak_of(call) / 2**20 for form, call in compiled.items()}
        rows.append(Row(config.name, batch, density, times, memory, error))
    return rows


def cells(row: Row) -> list[str]:
    """The row of the table."""
    times = [f"{row.times[form]:.1f}" for form in FORMS]
    ours = row.times["sparse"]
    over = [f"{row.times[form] / ours:.2f}x" for form in FORMS[:2]]
    memory = [f"{row.memory[form]:.0f}" for form in FORMS]
    return [row.network, f"{row.batch}", f"{row.density}", *times, *over, *memory]


def small_cells(name: str, seen: Seen) -> list[str]:
    """The row of the small networks' table."""
    found = seen.gated[name]
    change = found.right.astype(float) - seen.dense
    points = f"{100 * change.mean():+.2f} +- {100 * change.std() / len(change) ** 0.5:.2f}"
    times = [f"{found.times[form]:.1f}" for form in FORMS]
    over = [f"{found.times[form] / found.times['sparse']:.2f}x" for form in FORMS[:2]]
    shares = [f"{100 * found.shares.mean():.1f}", f"{100 * found.moved:.1f}"]
    return [name, *shares, f"{100 * found.right.mean():.2f}", points, *times, *over]


def study(weights: Path, train: bool, tests: int, steps: int | None, repeats: int) -> Seen:
    """Train the small networks or load them, and test them.

    Raises:
        AssertionError: when the masked forms classify more canvases differently than `DIFFERENT`.
    """
    config, canvases = model.resnet(20, SIDE), Canvases(SIDE)
    if train:
        store(trained(config, canvases, steps), weights)
    seen = evaluate(config, load(config, weights), canvases, tests, repeats)
    columns = ["numbers", "open\n[%]", "moved\n[%]", "right\n[%]", "points"]
    columns += [f"{form}\n[ms]" for form in FORMS] + ["over\ndense", "over\nmult."]
    title = (
        f"ResNet-20, {len(seen.dense)} canvases of {SIDE}x{SIDE}, {canvases.name}, batch "
        f"{min(BATCH, tests)}; dense: {100 * seen.dense.mean():.2f} % right"
    )
    rows = [small_cells(name, seen) for name in seen.gated]
    print_table(title, columns, rows, SMALL_LEGEND, total=False)
    for name, found in seen.gated.items():
        shares = " ".join(f"{share:.2f}" for share in found.shares)
        console.print(
            f"{name}: open pixels by block {shares}; canvases that the masked forms classify "
            f"differently: {found.different}",
            markup=False,
        )
        most = DIFFERENT[name] * tests / 1000
        assert found.different <= most, f"{name}: {found.different} differ"
    return seen


def draw(shown: Shown) -> Any:
    """Some canvases, and the pixels that the first block of each resolution computes."""
    count, chosen = min(6, len(shown.images)), (0, 3, 6)
    figure, axes = grid_figure(1 + len(chosen), count, 2 * count, 8.4)
    for i in range(count):
        axes[0, i].imshow(shown.images[i])
        text = f"{shown.labels[i]}, predicted {shown.predicted[i]}"
        axes[0, i].set_title(text, fontsize=9)
        for row, block in enumerate(chosen, 1):
            mask = shown.masks[block][i]
            axes[row, i].imshow(overlay(shown.images[i], mask, 0.6))
            axes[row, i].set_title(f"block {block + 1}: {100 * mask.mean():.0f} %", fontsize=9)
    figure.supxlabel("orange = open pixels, computed", fontsize=9)
    return figure


def run(
    out: Path,
    depths: Sequence[int] = (50,),
    batches: Sequence[int] = (1,),
    dtype: str = "float32",
    weights: Path = WEIGHTS,
    train: bool = False,
    tests: int = 9984,
    steps: int | None = None,
    side: int = 224,
    repeats: int = 9,
) -> Result:
    """The demo; `side` of the large networks' images, `steps` of each stage of a training."""
    seen = study(weights, train, tests, steps, repeats)
    rows = []
    for depth in depths:
        config = model.resnet(depth, side)
        for batch in batches:
            with working(f"compiling, comparing and timing {config.name}, batch {batch}"):
                rows += measure(config, batch, dtype, repeats)
    heads = [f"{form}\n[ms]" for form in FORMS]
    columns = ["network", "batch", "open", *heads, "over\ndense", "over\nmult."]
    columns += [f"{form}\n[MB]" for form in ("dense", "mult.", "sparse")]
    title = f"Gated residual networks, {side}x{side}, {dtype}"
    print_table(title, columns, [cells(row) for row in rows], LEGEND, total=False)
    console.print(
        f"greatest difference of a large network's logit between the masked forms: "
        f"{max(row.error for row in rows):.1e} of the largest",
        markup=False,
    )
    return Result(seen, rows, save(draw(seen.shown), out, "gated_resnet.png"))


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--full", action="store_true", help="both depths, batch 1, 8 and 64")
    made.add_argument("--depths", type=int, nargs="+", choices=[50, 101])
    made.add_argument("--batch", type=int, nargs="+", metavar="N", help="images of a timed call")
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    text = "train the small networks first, and store them"
    made.add_argument("--train", action="store_true", help=text)
    text = "of each stage of the training, in place of its own"
    made.add_argument("--steps", type=int, metavar="N", help=text)
    text = "the small networks' weights (default: those of the repository)"
    made.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FILE", help=text)
    made.add_argument("--tests", type=int, default=9984, metavar="N", help="canvases to test on")
    chosen = made.parse_args(argv)
    rest: dict[str, Any] = {"repeats": 21 if chosen.full else 9, "tests": chosen.tests}
    if chosen.quick:
        rest = {"tests": 32, "side": 64, "repeats": 1}
    depths = chosen.depths or ([50, 101] if chosen.full else [50])
    batches = chosen.batch or ([1, 8, 64] if chosen.full else [1])
    training = {"weights": chosen.weights, "train": chosen.train, "steps": chosen.steps}
    return run(chosen.out, depths, batches, chosen.dtype, **training, **rest)


if __name__ == "__main__":
    main()
