"""ResNet-50 and -101 whose blocks compute only where their gates are open (DynConv), and a
ResNet-20 that learns such gates for digits on photographs.

The large networks have random weights and 224x224 images. Their masks are drawn at random: smooth
regions of .1, .3 and .5 of each block's pixels. Their gates are computed, but do not decide the
masks. The small network is trained dense; from there its gates are learned, with a penalty that
pulls the share of open pixels to a target, and for comparison the dense network is trained on for
as long. `python examples/gated_resnet.py [--quick | --full] [--depths 50 101] [--batch N ...]
[--dtype bfloat16] [--steps DENSE GATED] [--target SHARE] [--out DIR]`. `--full` is for a GPU: both
depths, batch 1, 8 and 64.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import models.gated_resnet as model
from models.canvases import Canvases
from models.common import (
    console,
    grid_figure,
    overlay,
    parser,
    peak_of,
    print_table,
    progress,
    save,
    time_together,
    working,
)
from models.gated import Noise, straight_through
from models.gated_resnet import FORMS, Config, Params

DENSITIES = (0.1, 0.3, 0.5)
BATCH, SIDE = 64, 64
DENSE_STEPS, GATED_STEPS = 600, 400
PENALTY = 4.0
ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())
#: Of the largest logit, between the masked forms.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}
LEGEND = (
    "open: of a block's pixels; dense has no gates, multiplied and sparse compute them. MB: "
    "parameters, images, results and what XLA allocates between. Times are medians of calls of the "
    "three forms in turns."
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
    """Accuracies by form, predictions of the masked forms that differ, the share of open pixels of
    each learned block, the table's rows, the picture.
    """

    accuracy: dict[str, float]
    different: int
    shares: list[float]
    rows: list[Row]
    picture: Path


def loss_of(
    config: Config,
    target: float,
    params: Params,
    images: jax.Array,
    labels: jax.Array,
    noise: Noise | None,
) -> jax.Array:
    """Cross-entropy; with `noise` of the gated network, with the penalty on its open pixels."""
    form = "dense" if noise is None else "multiplied"
    found = model.run(config, form, params, images, noise=noise)
    entropy = optax.softmax_cross_entropy_with_integer_labels(found.logits, labels).mean()
    if noise is None:
        return entropy
    pairs = zip(found.masks, found.softs, strict=True)
    share = jnp.stack([straight_through(mask, soft).mean() for mask, soft in pairs]).mean()
    return entropy + PENALTY * (share - target) ** 2


def train_step(config: Config, target: float) -> Callable[..., Any]:
    """One step of Adam: (params, state, images, labels, rate, noise) -> (params, state, loss)."""
    loss = functools.partial(loss_of, config, target)

    @jax.jit
    def step(params: Params, state: Any, images: Any, labels: Any, rate: Any, noise: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, images, labels, noise)
        updates, state = ADAM.update(gradient, state, params)
        updates = jax.tree.map(lambda u: -rate * u, updates)
        return optax.apply_updates(params, updates), state, value

    return step


def train(
    step: Callable[..., Any],
    params: Params,
    canvases: Canvases,
    steps: int,
    gated: bool,
    seed: int,
    peak: float,
) -> Params:
    """`steps` batches; the rate rises for a tenth of them and then falls to 0, and the noise on the
    gates fades.
    """
    rates = optax.warmup_cosine_decay_schedule(0.0, peak, max(1, steps // 10), max(2, steps))
    state, rng, key = ADAM.init(params), np.random.default_rng(seed), jax.random.key(seed)
    name, value = "gated" if gated else "dense", np.nan
    with progress() as bar:
        task = bar.add_task(f"training, {name}", total=steps)
        for i in range(steps):
            images, labels = canvases.batch("train", BATCH, rng)
            scale = jnp.float32(max(0.0, 1 - i / (0.6 * steps)))
            noise = Noise(jax.random.fold_in(key, i), scale) if gated else None
            rate = jnp.float32(rates(i))
            params, state, value = step(params, state, images, labels, rate, noise)
            if i % 20 == 19:
                bar.update(task, description=f"training, {name}: loss {float(value):.3f}")
            if i % 100 == 99:
                console.print(f"{name}, step {i + 1}: loss {float(value):.3f}")
            bar.advance(task)
    console.print(f"trained {name}, {steps} steps: loss {float(value):.3f}")
    return params


def classified(
    config: Config, form: str, params: Params, images: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of all images, and each block's open pixels."""
    call = jax.jit(functools.partial(model.run, config, form))
    parts = [call(params, images[i : i + BATCH]) for i in range(0, len(images), BATCH)]
    masks = zip(*(part.masks for part in parts), strict=True)
    return np.concatenate([p.logits for p in parts]), [np.concatenate(m) for m in masks]


class Learned(NamedTuple):
    """Of the small network: accuracies by form, predictions that differ, test images, labels,
    predictions, and each block's open pixels.
    """

    accuracy: dict[str, float]
    different: int
    images: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    masks: list[np.ndarray]


def learn(steps: tuple[int, int], target: float, tests: int) -> Learned:
    """Train ResNet-20 and its gates, and test all forms.

    Raises:
        AssertionError: when the masked forms predict differently.
    """
    config, canvases = model.resnet(20, SIDE), Canvases(SIDE)
    console.print(f"ResNet-20: {canvases.name} on photographs; {steps[0]} and {steps[1]} steps")
    step = train_step(config, target)
    first = train(step, model.initial(config), canvases, steps[0], False, 0, 2e-3)
    gated = train(step, first, canvases, steps[1], True, 1, 1e-3)
    longer = train(step, first, canvases, steps[1], False, 1, 1e-3)
    images, labels = canvases.batch("test", tests, np.random.default_rng(2))
    weights = {"dense": longer, "multiplied": gated, "sparse": gated}
    with working("classifying the test canvases"):
        found = {form: classified(config, form, p, images) for form, p in weights.items()}
    predicted = {form: logits.argmax(-1) for form, (logits, _) in found.items()}
    different = int((predicted["multiplied"] != predicted["sparse"]).sum())
    assert different == 0, f"{different} of {tests} predictions differ"
    accuracy = {form: float((p == labels).mean()) for form, p in predicted.items()}
    return Learned(accuracy, different, images, labels, predicted["sparse"], found["sparse"][1])


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


def draw(learned: Learned) -> Any:
    """Some canvases, and what the first, the middle and the last block compute."""
    count, chosen = min(6, len(learned.images)), (0, 4, 8)
    figure, axes = grid_figure(1 + len(chosen), count, 2 * count, 8.4)
    for i in range(count):
        axes[0, i].imshow(learned.images[i])
        text = f"{learned.labels[i]}, predicted {learned.predicted[i]}"
        axes[0, i].set_title(text, fontsize=9)
        for row, block in enumerate(chosen, 1):
            mask = learned.masks[block][i]
            axes[row, i].imshow(overlay(learned.images[i], mask, 0.6))
            axes[row, i].set_title(f"block {block + 1}: {100 * mask.mean():.0f} %", fontsize=9)
    figure.supxlabel("orange = open pixels, computed", fontsize=9)
    return figure


def run(
    out: Path,
    depths: Sequence[int] = (50,),
    batches: Sequence[int] = (1,),
    dtype: str = "float32",
    steps: tuple[int, int] = (DENSE_STEPS, GATED_STEPS),
    target: float = 0.3,
    tests: int = 2048,
    side: int = 224,
    repeats: int = 9,
) -> Result:
    """The demo; `side` of the large networks' images."""
    learned = learn(steps, target, tests)
    shares = [float(mask.mean()) for mask in learned.masks]
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
    accuracy = {form: 100 * share for form, share in learned.accuracy.items()}
    console.print(
        f"ResNet-20 on {tests} test canvases: dense {accuracy['dense']:.2f} %, gated "
        f"{accuracy['multiplied']:.2f} % multiplied and {accuracy['sparse']:.2f} % sparse; open "
        f"pixels by block {np.round(shares, 2).tolist()}, mean {np.mean(shares):.2f}\n"
        f"greatest difference of a large network's logit between the masked forms: "
        f"{max(row.error for row in rows):.1e} of the largest",
        markup=False,
    )
    picture = save(draw(learned), out, "gated_resnet.png")
    return Result(learned.accuracy, learned.different, shares, rows, picture)


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--full", action="store_true", help="both depths, batch 1, 8 and 64")
    made.add_argument("--depths", type=int, nargs="+", choices=[50, 101])
    made.add_argument("--batch", type=int, nargs="+", metavar="N", help="images of a timed call")
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    steps, names = (DENSE_STEPS, GATED_STEPS), ("DENSE", "GATED")
    text = f"steps of training without gates and with them (default: {steps[0]} {steps[1]})"
    made.add_argument("--steps", type=int, nargs=2, metavar=names, help=text)
    text = "of the pixels that gates shall leave open (default: 0.3)"
    made.add_argument("--target", type=float, default=0.3, metavar="SHARE", help=text)
    chosen = made.parse_args(argv)
    if chosen.quick:
        steps, rest = (3, 3), {"tests": 32, "side": 64, "repeats": 1}
    else:
        rest = {"repeats": 21 if chosen.full else 9}
    depths = chosen.depths or ([50, 101] if chosen.full else [50])
    batches = chosen.batch or ([1, 8, 64] if chosen.full else [1])
    steps = tuple(chosen.steps) if chosen.steps else steps
    options = chosen.dtype, steps, chosen.target
    return run(chosen.out, depths, batches, *options, **rest)


if __name__ == "__main__":
    main()
