"""A small CNN, pruned to 90 % and fine-tuned on the kept weights, then run sparse.

`js.prune_model` prunes every layer that is large enough; the kept values are an operand of the
sparse layers, so they are trained through the same kernels that run afterwards. MNIST where
JAXSPARSE_DATA is set, scikit-learn's digits elsewhere. `python examples/pruned_cnn.py [--quick]
[--out DIR]`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import jaxsparse as js
from models.common import console, options, print_table, progress, save, time_together, working

SPARSITY, BATCH = 0.9, 128
CONVS = (("conv1", 1, 32, 1), ("conv2", 32, 64, 2), ("conv3", 64, 128, 2))


class Images(NamedTuple):
    """Images float32[n, side, side, 1] in [0, 1] and their labels."""

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class Result(NamedTuple):
    """Accuracies in per cent, and milliseconds of the test batch."""

    dense: float
    pruned: float
    tuned: float
    milliseconds: dict[str, float]


def load(quick: bool) -> Images:
    """MNIST, or scikit-learn's digits."""
    data = os.environ.get("JAXSPARSE_DATA")
    if data and (file := Path(data, "mnist.npz")).is_file():
        found, count = np.load(file), 8000 if quick else 30000
        train, test = (found[f"{k}_images"][..., None] / np.float32(255) for k in ("train", "test"))
        train_y, test_y = (found[f"{k}_labels"].astype(np.int32) for k in ("train", "test"))
        return Images("MNIST", train[:count], train_y[:count], test[:4000], test_y[:4000])
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    images = (x[order] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    labels = y[order].astype(np.int32)
    return Images("digits", images[:1400], labels[:1400], images[1400:], labels[1400:])


def initial(side: int) -> dict[str, Any]:
    """He-initialised parameters, in flax's layout."""
    rng, params = np.random.default_rng(0), {}
    for name, inputs, outputs, stride in CONVS:
        side = -(-side // stride)
        params[name] = layer(rng, (3, 3, inputs, outputs))
    params["hidden"] = layer(rng, (side * side * CONVS[-1][2], 128))
    params["head"] = layer(rng, (128, 10))
    return params


def layer(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, jax.Array]:
    """Kernel and bias."""
    scale = np.float32(np.sqrt(2 / np.prod(shape[:-1])))
    return {
        "kernel": jnp.asarray(rng.standard_normal(shape, np.float32) * scale),
        "bias": jnp.zeros(shape[-1], jnp.float32),
    }


def network(params: dict[str, Any], x: jax.Array) -> jax.Array:
    """Logits. A layer whose kernel is a `PrunedWeight` runs sparse, the others through XLA."""
    for name, _, _, stride in CONVS:
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        if isinstance(kernel, js.PrunedWeight):
            x = js.pruned_conv(x, kernel, strides=stride, bias=bias, activation="relu")
        else:
            dims = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(
                x, kernel, (stride, stride), "SAME", dimension_numbers=dims
            )
            x = jax.nn.relu(x + bias)
    x = x.reshape(x.shape[0], -1)
    for name, activation in (("hidden", "relu"), ("head", None)):
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        if isinstance(kernel, js.PrunedWeight):
            x = js.pruned_matmul(x, kernel, bias=bias, activation=activation)
        else:
            x = x @ kernel + bias
            x = jax.nn.relu(x) if activation else x
    return x


def train(params: Any, images: Images, epochs: int, rate: float, title: str) -> Any:
    """Adam on the cross entropy, over dense kernels or kept values alike."""
    steps = epochs * (len(images.train_x) // BATCH)
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = network(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    rng = np.random.default_rng(1)
    with progress() as bar:
        task = bar.add_task(title, total=steps)
        for _ in range(epochs):
            order = rng.permutation(len(images.train_x))
            for i in range(0, len(order) - BATCH + 1, BATCH):
                pick = order[i : i + BATCH]
                params, state = step(params, state, images.train_x[pick], images.train_y[pick])
                bar.advance(task)
    return params


def accuracy(run: Callable[[jax.Array], jax.Array], images: Images) -> float:
    """Per cent of the test images."""
    return 100 * float((np.argmax(run(images.test_x), -1) == images.test_y).mean())


def sparse_parameters(params: Any, model: Any) -> Any:
    """`params` with the planned kernels as `PrunedWeight`s."""
    values = model.values(params)
    return {
        name: {**entry, "kernel": values.get(f"{name}/kernel", entry["kernel"])}
        for name, entry in params.items()
    }


def run(quick: bool, out: Path) -> Result:
    """Train, prune, fine-tune, compare; print one table and save one picture."""
    images = load(quick)
    epochs = (2 if quick else 3) if images.name == "MNIST" else (25 if quick else 60)
    params = train(initial(images.train_x.shape[1]), images, epochs, 1e-3, "training dense")
    with working("pruning"):
        model = js.prune_model(params, SPARSITY)
    console.print(str(model))
    cut = sparse_parameters(params, model)
    tuned = train(cut, images, epochs, 1e-3, "fine-tuning the kept weights")
    dense, masked, sparse = (
        jax.jit(lambda x, p=p: network(p, x)) for p in (params, as_dense(tuned), tuned)
    )
    batch = jnp.asarray(images.test_x[:256])
    calls = {
        "dense": lambda: dense(batch),
        "pruned, run dense": lambda: masked(batch),
        "pruned, run sparse": lambda: sparse(batch),
    }
    with working("testing and timing each form"):
        right = [accuracy(f, images) for f in (dense, jax.jit(lambda x: network(cut, x)), sparse)]
        taken = time_together(calls, 5 if quick else 20)
    rows = [[name, f"{ms:.2f}", f"{taken['dense'] / ms:.2f}x"] for name, ms in taken.items()]
    title = (
        f"{images.name}: {right[0]:.2f} % dense, {right[1]:.2f} % after pruning to "
        f"{100 * SPARSITY:.0f} %, {right[2]:.2f} % fine-tuned"
    )
    print_table(title, ("form", "ms a batch of 256", "speed-up"), rows)
    draw(tuned, out)
    return Result(*right, taken)


def as_dense(params: Any) -> Any:
    """The same network with zeros written out."""
    return {
        name: {
            **entry,
            "kernel": entry["kernel"].to_dense()
            if isinstance(entry["kernel"], js.PrunedWeight)
            else entry["kernel"],
        }
        for name, entry in params.items()
    }


def draw(params: Any, out: Path) -> None:
    """The kept weights of the widest convolution: inputs and taps across, outputs down."""
    weight = as_dense(params)[CONVS[-1][0]]["kernel"]
    matrix = np.abs(np.asarray(weight)).reshape(-1, weight.shape[-1]).T
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(matrix > 0, cmap="gray_r", aspect="auto", interpolation="nearest")
    axes.set(xlabel="input channel and tap", ylabel="output", title="kept weights of conv3")
    save(figure, out, "pruned_cnn.png")


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    run(chosen.quick, chosen.out)
