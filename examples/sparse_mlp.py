"""A sparse, ReLU-bounded MLP trained on digits, then run as one call of saturated layers.

Nothing can be proven about such a network (signed weights, positive biases): only the recorder
saves work.
MNIST where JAXSPARSE_DATA is set, scikit-learn's digits elsewhere. `python examples/sparse_mlp.py
[--quick] [--out DIR]`.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from rich.table import Table

import jaxsparse as js
from models.common import console, options, progress, save, time_together, working

UPPER, BATCH = 1.0, 256


class Digits(NamedTuple):
    """Images float32[n, pixels] in [0, 1] and their labels."""

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class Result(NamedTuple):
    """What the demo found."""

    accuracy: float
    accuracy_dense: float
    milliseconds: dict[str, float]
    saturated: list[float]


def load(quick: bool) -> Digits:
    """MNIST, or scikit-learn's digits."""
    data = os.environ.get("JAXSPARSE_DATA")
    if data and (file := Path(data, "mnist.npz")).is_file():
        found = np.load(file)
        count = 10000 if quick else 60000
        train, test = (found[f"{k}_images"].reshape(-1, 784) / 255.0 for k in ("train", "test"))
        labels = found["train_labels"][:count], found["test_labels"]
        return Digits("MNIST", train[:count].astype("f4"), labels[0], test.astype("f4"), labels[1])
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype("f4"), y[order]
    return Digits("digits", x[:1400], y[:1400], x[1400:], y[1400:])


def initial(widths: Sequence[int], density: float) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """Parameters, and the fixed random mask of each hidden layer; the last layer is dense."""
    rng, params, masks = np.random.default_rng(0), [], []
    for i, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
        mask = rng.random((n_in, n_out)) < (1.0 if i == len(widths) - 2 else density)
        scale = np.sqrt(2.0 / max(mask.sum() / n_out, 1.0))
        weight = (rng.standard_normal(mask.shape) * mask * scale).astype("f4")
        params.append({"w": jnp.asarray(weight), "b": jnp.full(n_out, 0.1, jnp.float32)})
        masks.append(mask)
    return params, masks


def dense(params: list[dict[str, Any]], masks: list[Any], x: jax.Array) -> jax.Array:
    """The network with masked dense products: what is trained."""
    for layer, mask in zip(params[:-1], masks[:-1], strict=True):
        x = jnp.clip(x @ jnp.where(mask, layer["w"], 0.0) + layer["b"], 0.0, UPPER)
    return x @ params[-1]["w"] + params[-1]["b"]


def train(digits: Digits, epochs: int) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """Adam on the cross entropy; masked entries never get a gradient."""
    params, masks = initial((digits.train_x.shape[1], 512, 256, 10), 0.12)
    steps = epochs * (len(digits.train_x) // BATCH)
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-3, steps))
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = dense(params, masks, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    rng = np.random.default_rng(1)
    with progress() as bar:
        task = bar.add_task("training", total=steps)
        for _ in range(epochs):
            order = rng.permutation(len(digits.train_x))
            for i in range(0, len(order) - BATCH + 1, BATCH):
                pick = order[i : i + BATCH]
                x, y = digits.train_x[pick], digits.train_y[pick].astype(np.int32)
                params, state = step(params, state, x, y)
                bar.advance(task)
    return params, masks


def inspected(params: list[dict[str, Any]], masks: list[np.ndarray]) -> list[js.bounded.Layer]:
    """The hidden layers, inspected."""
    hidden = zip(params[:-1], masks[:-1], strict=True)
    return [
        js.bounded.inspect(np.where(m, p["w"], 0), np.asarray(p["b"]), UPPER) for p, m in hidden
    ]


def run(quick: bool, out: Path) -> Result:
    """Train, inspect, compare, print one table and save one picture."""
    digits = load(quick)
    params, masks = train(digits, (3 if quick else 6) if digits.name == "MNIST" else 60)
    with working("inspecting the layers"):
        layers = inspected(params, masks)
        net = js.bounded.network(layers)
    x, head = jnp.asarray(digits.test_x), params[-1]

    @jax.jit
    def sparse(net: js.bounded.Network, x: jax.Array) -> jax.Array:
        return net(x).materialize() @ head["w"] + head["b"]

    plain = jax.jit(lambda x: dense(params, masks, x))
    calls = {
        "masked dense (XLA)": lambda: plain(x),
        "one call of bounded layers": lambda: sparse(net, x),
    }
    with working("testing and timing both forms"):
        taken = time_together(calls, 5 if quick else 20)
        right = [float((np.argmax(f(), -1) == digits.test_y).mean()) for f in calls.values()]
    acts, saturated = x, []
    for layer in layers:
        acts = js.bounded_matmul(acts, layer).materialize()
        saturated.append(float(jnp.mean((acts == 0) | (acts == UPPER))))
    table = Table(title=f"sparse MLP on {digits.name}, {len(x)} test images")
    for column in ("form", "ms", "test accuracy"):
        table.add_column(column, justify="left" if column == "form" else "right")
    for (name, ms), accuracy in zip(taken.items(), right, strict=True):
        table.add_row(name, f"{ms:.2f}", f"{100 * accuracy:.2f} %")
    console.print(table)
    console.print(f"{net}\nelements at a bound after each layer: {[f'{s:.2f}' for s in saturated]}")
    draw(np.asarray(js.bounded_matmul(x[:200], layers[0]).materialize()), out)
    return Result(right[1], right[0], taken, saturated)


def draw(values: np.ndarray, out: Path) -> None:
    """First hidden layer of some images: white at the bound, black at zero."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap="gray", vmin=0, vmax=UPPER, aspect="auto", interpolation="nearest")
    axes.set(xlabel="neuron", ylabel="image", title="first hidden layer, between its bounds")
    save(figure, out, "sparse_mlp.png")


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    run(chosen.quick, chosen.out)
