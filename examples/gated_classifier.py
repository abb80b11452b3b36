"""Train a classifier whose blocks gate their own pixels, then run it only where the gates are open.

Each block's head predicts a spatial mask. Gradients pass straight through the gates, and the
convolutions have the sparse gradients of `js.masked_conv`; a penalty pulls the share of open pixels
to a target. Then the sparse form predicts what the masked-dense form does, in less time.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxsparse as js
from models import gated_data
from models.common import (
    FORM_TITLES,
    FORMS,
    console,
    grid_figure,
    options,
    outline_tiles,
    overlay,
    print_table,
    progress,
    rest_row,
    save,
    time_together,
    times_row,
    working,
)
from models.gated import Classifier, Noise, straight_through

TARGETS = (0.3, 0.2, 0.3)
SPARSITY_WEIGHT = 4.0
BATCH = 128
LEGEND = (
    "open: pixels that the block's gate leaves open, on average over the test images; jaxsparse "
    "computes these. A block's time is of it alone, its gate included.\n"
    "stem, down, pooling, logits: the whole network less its blocks (below zero where blocks alone "
    "take longer than within the network)."
)


class Result(NamedTuple):
    """Accuracies, predictions that differ, densities per block, the table's rows, the picture."""

    sparse_accuracy: float
    multiplied_accuracy: float
    different_predictions: int
    densities: list[float]
    rows: list[list[str]]
    times: dict[str, float]
    picture: Path


def loss_of(
    model: Classifier, images: jax.Array, labels: jax.Array, noise: Noise
) -> tuple[jax.Array, jax.Array]:
    """(cross-entropy plus the sparsity penalty, share of open pixels), with sampled gates."""
    logits, _, masks, softs = model(images, "sparse", noise)
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    gates = zip(masks, softs, strict=True)
    shares = jnp.stack([straight_through(mask, soft).mean() for mask, soft in gates])
    return entropy + SPARSITY_WEIGHT * ((shares - jnp.asarray(TARGETS)) ** 2).sum(), shares.mean()


@nnx.jit
def train_step(
    model: Classifier,
    optimizer: Any,
    images: jax.Array,
    labels: jax.Array,
    noise: Noise,
) -> tuple[jax.Array, jax.Array]:
    """One step of Adam; returns the loss and the share of open pixels."""
    value_and_grad = nnx.value_and_grad(loss_of, has_aux=True)
    (loss, share), gradient = value_and_grad(model, images, labels, noise)
    optimizer.update(model, gradient)
    return loss, share


def train(model: Classifier, digits: gated_data.Digits, steps: int, seed: int = 0) -> None:
    """`steps` batches of moved digits; the noise on the gates, which tries closed pixels, fades."""
    schedule = optax.cosine_decay_schedule(3e-3, steps)
    optimizer = nnx.Optimizer(model, optax.adam(schedule), wrt=nnx.Param)
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    with progress() as bar:
        task = bar.add_task("training", total=steps)
        for step in range(steps):
            chosen = rng.integers(0, len(digits.train_images), BATCH)
            images = jnp.asarray(gated_data.shifted(digits.train_images[chosen], rng))
            labels = jnp.asarray(digits.train_labels[chosen])
            left = max(0.0, 1 - step / (0.6 * steps))
            noise = Noise(jax.random.fold_in(key, step), jnp.float32(0.5 * left))
            loss, share = train_step(model, optimizer, images, labels, noise)
            if step % 10 == 9:
                text = f"training: loss {float(loss):.3f}, {100 * float(share):.0f} % open"
                bar.update(task, description=text)
            bar.advance(task)


def forms_of(model: Classifier) -> dict[str, Any]:
    """The jitted model in each form: images -> (logits, inputs, masks, softs)."""
    graph, state = nnx.split(model)

    def call(form: str, state: Any, images: jax.Array) -> Any:
        return nnx.merge(graph, state)(images, form)

    return {f: functools.partial(jax.jit(functools.partial(call, f)), state) for f in FORMS}


def classify(form: Any, images: np.ndarray, size: int = 360) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of all images, and each block's open pixels."""
    parts = [form(jnp.asarray(images[i : i + size])) for i in range(0, len(images), size)]
    masks = zip(*(masks for _, _, masks, _ in parts), strict=True)
    return np.concatenate([p[0] for p in parts]), [np.concatenate(m) for m in masks]


def block_times(model: Classifier, inputs: list[jax.Array], repeats: int) -> list[dict[str, float]]:
    """Milliseconds of each block in each form, its gate included."""
    found = []
    for block, x in zip((model.block1, model.block2, model.block3), inputs, strict=True):
        graph, state = nnx.split(block)

        def call(form: str, state: Any, x: jax.Array, graph: Any = graph) -> jax.Array:
            return nnx.merge(graph, state)(x, form, None, None)[0]

        calls = {f: functools.partial(jax.jit(functools.partial(call, f)), state, x) for f in FORMS}
        found.append(time_together(calls, repeats))
    return found


def draw(images: np.ndarray, labels: np.ndarray, predicted: np.ndarray, masks: Any) -> Any:
    """Some digits; the pixels that each block computes for them, with their tiles."""
    count = min(6, len(images))
    figure, axes = grid_figure(4, count, 1.9 * count, 8)
    for i in range(count):
        image = np.repeat(images[i], 3, -1)
        axes[0, i].imshow(image)
        axes[0, i].set_title(f"{labels[i]}, predicted {predicted[i]}", fontsize=9)
        for b, mask in enumerate(masks):
            index = js.tile_index(jnp.asarray(mask[i : i + 1]))
            axes[b + 1, i].imshow(overlay(image, mask[i], 0.6))
            scale = 32 // mask.shape[1]
            outline_tiles(axes[b + 1, i], np.asarray(index.tile_mask()[0]), index.tile, scale)
            axes[b + 1, i].set_title(f"block {b + 1}: {100 * mask[i].mean():.0f} %", fontsize=9)
    figure.supxlabel(
        "orange = open pixels, computed; blue = tiles that hold an open pixel", fontsize=9
    )
    return figure


def run(quick: bool, out: Path) -> Result:
    """The demo; raises AssertionError when the two masked forms predict differently."""
    digits = gated_data.load()
    steps, features, repeats = (30, 16, 2) if quick else (400, 32, 9)
    model = Classifier(features, nnx.Rngs(0))
    console.print(
        f"{digits.name}: {len(digits.train_labels)} to train on, {steps} steps of {BATCH}"
    )
    train(model, digits, steps)
    forms = forms_of(model)
    with working("classifying the test images in both forms"):
        logits, masks = classify(forms["sparse"], digits.test_images)
        expected, _ = classify(forms["multiplied"], digits.test_images)
    predicted = logits.argmax(-1)
    different = int((predicted != expected.argmax(-1)).sum())
    assert different == 0, f"{different} of {len(predicted)} predictions differ"
    accuracy = [float((p.argmax(-1) == digits.test_labels).mean()) for p in (logits, expected)]
    images = jnp.asarray(digits.test_images[:360])
    inputs = forms["sparse"](images)[1]
    densities = [float(mask.mean()) for mask in masks]
    rows = []
    calls = {form: functools.partial(forms[form], images) for form in FORMS}
    with working("timing each block, and the network"):
        blocks = block_times(model, inputs, repeats)
        times = time_together(calls, repeats)
    for b, block in enumerate(blocks):
        shape = "x".join(map(str, inputs[b].shape))
        rows.append([f"block {b + 1}", shape, f"{100 * densities[b]:.1f}", *times_row(block)])
    rest = rest_row(times, [(1, block) for block in blocks])
    rows.append(["stem, down, pooling, logits", "", "", *rest])
    rows.append(["whole network", f"{len(images)} images", "", *times_row(times)])
    columns = ["layer", "features", "open\n[%]", *FORM_TITLES]
    print_table("A classifier that gates its own pixels", columns, rows, LEGEND)
    console.print(
        f"accuracy on {len(predicted)} test images: sparse {100 * accuracy[0]:.2f} %, "
        f"masked-dense {100 * accuracy[1]:.2f} %; predictions that differ: {different}; "
        f"greatest difference of a logit: {np.abs(logits - expected).max():.1e}"
    )
    figure = draw(digits.test_images, digits.test_labels, predicted, masks)
    picture = save(figure, out, "gated_classifier.png")
    return Result(accuracy[0], accuracy[1], different, densities, rows, times, picture)


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    chosen = options(__doc__ or "", argv)
    return run(chosen.quick, chosen.out)


if __name__ == "__main__":
    main()
