"""How sparse the activations of a trained ReLU network are, layer by layer, and what
`js.sparse_ffn` gains from them.

A small transformer learns to predict the next word of Python's language reference. Then the real
inputs of its feed-forward networks on held-out text go through `js.sparse_ffn` and through XLA's
dense products: the results must agree. `python
examples/relu_activations.py [--quick] [--layers N] [--width N] [--steps N] [--out DIR]`.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import jaxsparse as js
from models.common import parser, print_table, progress, save, time_together
from models.text import pieces

HEAD, WORDS, LONGEST, ROWS = 64, 2048, 64, 8
OPTIMIZER = optax.adam(2e-3)
TOKENS = (1, 4, 512)  # how many are computed together
TOLERANCE = 1e-4
CALLS_IN_A_ROW = 20
Params = dict[str, Any]


class Layer(NamedTuple):
    """What was found in one layer: the share of activations that is zero; by number of tokens the
    share of rows of w_down that no token needs, the times as fast as dense, the largest difference.
    """

    zeros: float
    unread: dict[int, float]
    faster: dict[int, float]
    difference: float


class Result(NamedTuple):
    """Loss at each step, what each layer has, the picture."""

    losses: list[float]
    layers: list[Layer]
    picture: Path


def batch_of(rng: np.random.Generator, held_out: bool = False) -> jax.Array:
    """int32[ROWS, LONGEST + 1]: runs of words; every tenth paragraph is held out."""
    found = [p for i, p in enumerate(pieces("paragraphs")) if (i % 10 == 0) == held_out]
    rows = []
    for _ in range(ROWS):
        words: list[int] = []
        while len(words) <= LONGEST:
            words += [1 + word % (WORDS - 1) for word in found[rng.integers(len(found))]] + [0]
        rows.append(words[: LONGEST + 1])
    return jnp.asarray(rows, jnp.int32)


def initial(layers: int, width: int) -> Params:
    """Random parameters."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape) / shape[0] ** 0.5, jnp.float32)

    blocks = [
        {
            "qkv": draw(width, 3 * width),
            "out": draw(width, width),
            "up": draw(width, 4 * width),
            "down": draw(4 * width, width),
        }
        for _ in range(layers)
    ]
    words = draw(width, WORDS).T
    return {"words": words, "places": draw(width, LONGEST).T, "blocks": blocks}


def norm(x: jax.Array) -> jax.Array:
    """Each token with mean 0 and variance 1."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def forward(params: Params, ids: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """Words int32[rows, n] -> (scores of the next ones, the input of each feed-forward network)."""
    x, inputs = params["words"][ids] + params["places"][: ids.shape[1]], []
    for block in params["blocks"]:
        qkv = jnp.split(norm(x) @ block["qkv"], 3, axis=-1)
        heads = (part.reshape(*ids.shape, -1, HEAD) for part in qkv)
        y = jax.nn.dot_product_attention(*heads, is_causal=True)
        x = x + y.reshape(x.shape) @ block["out"]
        inputs.append(norm(x))
        x = x + dense(inputs[-1], block["up"], block["down"])
    return norm(x) @ params["words"].T, inputs


def dense(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """The feed-forward network by XLA."""
    return jax.nn.relu(x @ up) @ down


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params: Params, moments: Any, text: jax.Array) -> tuple[Params, Any, jax.Array]:
    """One step of Adam: (parameters, its state, cross-entropy of the next word)."""

    def loss_of(params: Params) -> jax.Array:
        scores = jax.nn.log_softmax(forward(params, text[:, :-1])[0])
        return -jnp.take_along_axis(scores, text[:, 1:, None], -1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(params)
    updates, moments = OPTIMIZER.update(gradient, moments)
    changed: Any = optax.apply_updates(params, updates)
    return changed, moments, loss


def measure(block: dict[str, jax.Array], inputs: jax.Array, repeats: int) -> Layer:
    """One layer on its inputs f32[tokens, width].

    Raises:
        AssertionError: when the two results differ.
    """
    up, down = block["up"], block["down"]
    active = np.asarray(inputs @ up) > 0
    ours = jax.jit(lambda x: js.sparse_ffn(x, up, down))
    theirs = jax.jit(lambda x: dense(x, up, down))
    unread, faster, worst = {}, {}, 0.0
    for tokens in TOKENS:
        x, groups = inputs[:tokens], len(inputs) // tokens
        needed = active[: groups * tokens].reshape(groups, tokens, -1).any(1)
        unread[tokens] = float(1 - needed.mean())
        want = np.asarray(theirs(x))
        worst = max(worst, float(np.abs(np.asarray(ours(x)) - want).max() / np.abs(want).max()))
        assert worst <= TOLERANCE or jax.default_backend() == "gpu", f"they differ by {worst:.1e}"
        calls = {
            "dense": functools.partial(in_a_row, theirs, x),
            "sparse": functools.partial(in_a_row, ours, x),
        }
        times = time_together(calls, repeats)
        faster[tokens] = times["dense"] / times["sparse"]
    return Layer(float(1 - active.mean()), unread, faster, worst)


def in_a_row(call: Any, x: jax.Array) -> Any:
    """Calls none of which is waited for while the next one can start."""
    return [call(x) for _ in range(CALLS_IN_A_ROW)][-1]


def train(
    layers: int, width: int, steps: int, rng: np.random.Generator
) -> tuple[Params, list[float]]:
    """Parameters after so many steps, and the loss at each."""
    params, losses = initial(layers, width), []
    moments = OPTIMIZER.init(params)
    with progress() as bar:
        task = bar.add_task("training", total=steps)
        for _ in range(steps):
            params, moments, loss = train_step(params, moments, batch_of(rng))
            losses.append(float(loss))
            bar.advance(task)
    return params, losses


def run(layers: int, width: int, steps: int, out: Path, repeats: int = 15) -> Result:
    """Train, measure each layer, print a table and save a picture."""
    rng = np.random.default_rng(1)
    params, losses = train(layers, width, steps, rng)
    text = batch_of(rng, held_out=True)[:, :-1]
    inputs = jax.jit(forward)(params, text)[1]
    pairs = zip(params["blocks"], inputs, strict=True)
    found = [measure(block, x.reshape(-1, width), repeats) for block, x in pairs]
    rows = [
        [
            f"{i + 1}",
            f"{100 * layer.zeros:.1f} %",
            *(f"{100 * layer.unread[n]:.0f} %" for n in TOKENS),
            *(f"{layer.faster[n]:.2f}x" for n in TOKENS),
            f"{layer.difference:.0e}",
        ]
        for i, layer in enumerate(found)
    ]
    heads = [f"unread,\n{n}" for n in TOKENS]
    title = f"ReLU, width {width}, {4 * width} activations; loss {losses[-1]:.2f} at step {steps}"
    columns = ("layer", "zeros", *heads, *(f"faster,\n{n}" for n in TOKENS), "differ")
    legend = "unread: rows of w_down that none of so many tokens needs; faster: than XLA's products"
    print_table(title, columns, rows, legend)
    return Result(losses, found, draw(losses, found, out))


def draw(losses: list[float], layers: list[Layer], out: Path) -> Path:
    """The loss, and zeros and speed-up by layer."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(losses)
    left.set(xlabel="step", ylabel="cross-entropy of the next word", title="training")
    places = np.arange(1, len(layers) + 1)
    middle.bar(places, [layer.zeros for layer in layers])
    middle.set(xlabel="layer", xticks=places, ylim=(0, 1), title="share of zeros")
    for n in TOKENS:
        right.plot(places, [layer.faster[n] for layer in layers], marker="o", label=f"{n} tokens")
    right.axhline(1.0, color="black", linewidth=0.8)
    right.set(xlabel="layer", xticks=places, title="times as fast as dense")
    right.legend()
    return save(figure, out, "relu_activations.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    for name in ("layers", "width", "steps"):
        command.add_argument(f"--{name}", type=int)
    chosen = command.parse_args(argv)
    layers, width, steps = (2, 64, 15) if chosen.quick else (4, 256, 200)
    steps = steps if chosen.steps is None else chosen.steps
    repeats = 2 if chosen.quick else 15
    return run(chosen.layers or layers, chosen.width or width, steps, chosen.out, repeats)


if __name__ == "__main__":
    main()
