"""How often the ReLU6 of a trained MobileNetV2 saturates, layer by layer, and how much time
recorders save: the next layer does not read whole segments that are zero or at the bound.

A small MobileNetV2 is trained on handwritten digits (scikit-learn's, or MNIST where JAXSPARSE_DATA
is set), with biases and without; the training runs through `js.masked_conv`, which has gradients of
its own for depthwise convolutions. Then the same weights run dense through XLA, through jaxsparse,
and through jaxsparse with recorders passed from layer to layer: from every layer, and from those
where recording is measured to pay. Predictions must agree, and the fastest form is chosen.
`python examples/saturated_mobilenet.py [--quick | --full] [--batch N] [--steps N] [--out DIR]`.
`--full` is for a GPU: batch 256.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import jaxsparse as js
import models.saturated_mobilenet as model
from models import gated_data
from models.common import console, parser, print_table, progress, save, time_together, working
from models.gated_data import Digits

FORMS = ("dense", "jaxsparse", "recorded", "selected")
#: A layer is selected to record if it and the next layer together are this many times as fast.
GAIN = 1.05
SEGMENTS = (1, 8, 32)
BATCH = 64
#: Test images that are given to every form; the fastest form gets all of them.
COMPARED = 500
#: Of the largest logit.
TOLERANCE = 1e-4
LEGEND = (
    "segments: of all that hold nothing but zeros or nothing but 6, by channels of a segment; "
    "pixel: all channels. Only whole pixels are recorded here, because the next layer skips an "
    "output when every pixel of its window is decided: skipped says of how many that holds. gain: "
    "the time of the layer and the next one without a recorder, over that with one."
)


class Layer(NamedTuple):
    """Of one layer: shares of decided segments by their size (0: a whole pixel), the share of
    single values at the bound, and of the next layer's outputs that are skipped; and how many times
    as fast both layers are with a recorder.
    """

    decided: dict[int, float]
    upper: float
    skipped: float
    gain: float


class Variant(NamedTuple):
    """One trained network: its accuracy, layers by name, those selected to record, milliseconds by
    form, the largest difference of a logit over the largest logit, and the fastest form.
    """

    accuracy: float
    layers: dict[str, Layer]
    selected: list[str]
    times: dict[str, float]
    error: float
    chosen: str


class Result(NamedTuple):
    """The networks "biases" and "no biases", and the picture."""

    variants: dict[str, Variant]
    picture: Path


def train(form: model.Form, params: model.Params, digits: Digits, steps: int) -> model.Params:
    """`steps` batches of moved digits."""
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, steps))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss_of(params: Any) -> jax.Array:
            logits = model.logits_of(form, params, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    state, rng, loss = optimizer.init(params), np.random.default_rng(0), np.nan
    with progress() as bar:
        task = bar.add_task("training", total=steps)
        for i in range(steps):
            chosen = rng.integers(0, len(digits.train_images), BATCH)
            images = jnp.asarray(gated_data.shifted(digits.train_images[chosen], rng))
            labels = jnp.asarray(digits.train_labels[chosen])
            params, state, loss = step(params, state, images, labels)
            if i % 20 == 19:
                bar.update(task, description=f"training: loss {float(loss):.3f}")
            bar.advance(task)
    console.print(f"{'with' if form.use_bias else 'without'} biases: loss {float(loss):.3f}")
    return params


def layer_of(y: jax.Array, window: int, stride: int, gain: float) -> Layer:
    """How much of y f32[B,H,W,C] is saturated; the next layer has this window and stride."""
    channels = y.shape[-1]
    decided = {}
    for size in (*SEGMENTS, 0):
        codes = js.recorder.probe(y, size or channels, model.UPPER).codes
        decided[size] = float((codes != js.recorder.MIXED).mean())
    pixels = (codes == js.recorder.MIXED)[..., 0]
    skipped = 1 - float(js.mask.propagate(pixels, window, stride).mean())
    return Layer(decided, float((y == model.UPPER).mean()), skipped, gain)


def layers_of(
    form: model.Form, params: model.Params, images: jax.Array, timed: jax.Array, repeats: int
) -> dict[str, Layer]:
    """Every layer that can record, in order: shares for `images`, the gain for `timed`."""
    found, pairs = {}, model.pairs(form, params, images)
    for name, pair in model.pairs(form, params, timed).items():
        forms = {
            r: jax.jit(functools.partial(model.through, pair, r == "on")) for r in ("off", "on")
        }
        calls = {r: functools.partial(call, pair.x) for r, call in forms.items()}
        times = time_together(calls, repeats)
        window, stride = pair.params[1]["kernel"].shape[0], pair.strides[1]
        gain = times["off"] / times["on"]
        found[name] = layer_of(pairs[name].result, window, stride, gain)
    return found


def kinds_of(
    blocks: tuple[model.Block, ...], use_bias: bool, selected: Sequence[str]
) -> dict[str, model.Form]:
    """The forms by name; without selected layers there is no form "selected"."""
    every = frozenset([*model.names(blocks), "hidden"])
    records = {"jaxsparse": frozenset(), "recorded": every, "selected": frozenset(selected)}
    if not selected:
        del records["selected"]
    dense = {"dense": model.Form(blocks, use_bias)}
    return dense | {name: model.Form(blocks, use_bias, True, r) for name, r in records.items()}


def accuracy_of(call: Callable[[jax.Array], jax.Array], digits: Digits, tests: int) -> float:
    """Share of the first `tests` test images that the logits of `call` classify correctly."""
    right = 0
    for at in range(0, tests, COMPARED):
        part = slice(at, min(at + COMPARED, tests))
        predicted = np.asarray(call(jnp.asarray(digits.test_images[part]))).argmax(-1)
        right += int((predicted == digits.test_labels[part]).sum())
    return right / tests


def study(
    blocks: tuple[model.Block, ...],
    digits: Digits,
    use_bias: bool,
    steps: int,
    batch: int,
    tests: int,
    repeats: int,
) -> Variant:
    """Train one network, look at its layers, compare and time its forms.

    Raises:
        AssertionError: when two forms predict differently.
    """
    masked = model.Form(blocks, use_bias, masked=True)
    params = train(masked, model.initial(blocks, use_bias), digits, steps)
    images = jnp.asarray(digits.test_images[: min(tests, COMPARED)])
    some = jnp.asarray(np.resize(digits.test_images, (batch, *digits.test_images.shape[1:])))
    with working("looking at the layers"):
        form = model.Form(blocks, use_bias)
        layers = layers_of(form, params, images[:256], some, repeats)
    selected = [name for name, layer in layers.items() if layer.gain > GAIN]
    kinds = kinds_of(blocks, use_bias, selected)
    forms = {
        form: jax.jit(functools.partial(model.logits_of, kind, params))
        for form, kind in kinds.items()
    }
    with working("comparing and timing the forms"):
        logits = {form: np.asarray(call(images)) for form, call in forms.items()}
        want = logits["dense"]
        error = max(float(np.abs(y - want).max() / np.abs(want).max()) for y in logits.values())
        gpu = jax.default_backend() == "gpu"
        assert error <= TOLERANCE or gpu, f"logits differ by {error:.1e} of the largest"
        calls = {form: functools.partial(call, some) for form, call in forms.items()}
        times = time_together(calls, repeats)
    chosen = min(times, key=lambda form: times[form])
    accuracy = accuracy_of(forms[chosen], digits, tests)
    return Variant(accuracy, layers, selected, times, error, chosen)


def cells(name: str, layer: Layer) -> list[str]:
    """The row of the table."""
    decided = [f"{100 * layer.decided[size]:.1f}" for size in (*SEGMENTS, 0)]
    return [
        name,
        f"{100 * layer.upper:.1f}",
        *decided,
        f"{100 * layer.skipped:.1f}",
        f"{layer.gain:.2f}x",
    ]


def draw(variants: dict[str, Variant], out: Path) -> Path:
    """Decided segments by layer, and times."""
    figure = Figure(figsize=(13, 5), layout="constrained")
    axes = figure.subplots(1, 1 + len(variants))
    for each, (title, variant) in zip(axes, variants.items(), strict=False):
        names = list(variant.layers)
        for size in (*SEGMENTS, 0):
            values = [variant.layers[name].decided[size] for name in names]
            label = f"{size} channels" if size else "a whole pixel"
            each.plot(range(len(names)), values, marker="o", label=label)
        each.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        each.set(title=f"{title}: share of segments decided", ylim=(0, 1))
        each.legend(fontsize=8)
    places = np.arange(len(variants))
    for i, form in enumerate(FORMS):
        values = [variant.times.get(form, 0) for variant in variants.values()]
        axes[-1].bar(places + 0.2 * (i - 1.5), values, 0.18, label=form)
    axes[-1].set_xticks(places, list(variants))
    axes[-1].set(title="milliseconds")
    axes[-1].legend()
    return save(figure, out, "saturated_mobilenet.png")


def run(
    out: Path,
    steps: int,
    batch: int,
    tests: int,
    repeats: int,
    blocks: tuple[model.Block, ...] = model.BLOCKS,
) -> Result:
    """The demo."""
    digits, variants = gated_data.load(), {}
    tests = min(tests, len(digits.test_labels))
    console.print(
        f"{digits.name}: {len(digits.train_labels)} to train on, {steps} steps of {BATCH}"
    )
    for title, use_bias in (("biases", True), ("no biases", False)):
        found = study(blocks, digits, use_bias, steps, batch, tests, repeats)
        variants[title] = found
        heads = [f"segments\nof {size}\n[%]" for size in SEGMENTS]
        columns = [
            "ReLU6 of",
            "values\nat 6 [%]",
            *heads,
            "pixel\n[%]",
            "skipped\nnext [%]",
            "gain",
        ]
        rows = [cells(name, layer) for name, layer in found.layers.items()]
        text = f"MobileNetV2, {title}: {100 * found.accuracy:.2f} % of {tests} test images"
        print_table(text, columns, rows, LEGEND, total=False)
        times = ", ".join(f"{form} {ms:.2f} ms" for form, ms in found.times.items())
        recording = {form: found.times["jaxsparse"] / ms for form, ms in found.times.items()}
        console.print(
            f"batch {batch}: {times}. Recording everywhere is {recording['recorded']:.2f}x as fast "
            f"as not recording. {len(found.selected)} layers are selected: "
            f"{', '.join(found.selected) or 'none'}. The network runs as: {found.chosen}. "
            f"Greatest difference of a logit: {found.error:.1e} of the largest\n",
            markup=False,
        )
    return Result(variants, draw(variants, out))


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--full", action="store_true", help="batch 256")
    made.add_argument("--batch", type=int, metavar="N", help="images of a timed call (default: 32)")
    made.add_argument("--steps", type=int, metavar="N", help="of each training (default: 400)")
    chosen = made.parse_args(argv)
    steps, batch, tests, repeats = (3, 4, 16, 1) if chosen.quick else (400, 32, 10000, 15)
    batch = chosen.batch or (256 if chosen.full else batch)
    blocks = model.SMALL if chosen.quick else model.BLOCKS
    return run(chosen.out, chosen.steps or steps, batch, tests, repeats, blocks)


if __name__ == "__main__":
    main()
