"""A prompt and the decoding of an answer with ReLU networks of OPT's shape, by XLA's dense products
and by `js.sparse_ffn`, which reads the rows of the second weight whose activation is not zero.

One network is trained here on text (relu_activations.py) and has the zeros that training gives it.
The others have OPT's sizes and random weights; a bias sets their share of zeros. Both forms must
give the same logits, and in float32 the same answer.

`python examples/relu_decode.py [--quick | --full] [--sizes 125M 1.3B 6.7B] [--zeros SHARE ...]
[--steps N] [--prompt N] [--answer N] [--dtype bfloat16] [--out DIR]`. `--full` is for a GPU.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import relu_activations as trained
from matplotlib.figure import Figure

from models.common import console, parser, peak_of, print_table, save, time_together
from models.relu import FORMS, SIZES, Config, Params, decode, initial, prompt, zeros_of

TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2}  # of the largest logit
LEGEND = (
    "zeros: share of the activations of the prompt that are zero. by bytes: bytes of all weights "
    "over those that a token needs, which is the gain where both forms read memory equally fast. "
    "same: tokens of the answer that are equal. Medians of calls in turns. Memory is XLA's, of "
    "decoding: weights, cache and temporaries; the working memory of jaxsparse's CPU kernels is "
    "not in it."
)


class Network(NamedTuple):
    """Weights, and a prompt int32[1,n] for them."""

    name: str
    params: Params
    ids: jax.Array


class Row(NamedTuple):
    """One network: zeros by layer; milliseconds of the prompt and of a token, and megabytes, by
    form; bytes of all weights over those that a token needs; the largest difference of a logit over
    the largest logit; tokens of the answer, and how many are equal.
    """

    name: str
    zeros: np.ndarray
    prompt: dict[str, float]
    token: dict[str, float]
    memory: dict[str, float]
    by_bytes: float
    error: float
    answer: int
    same: int

    @property
    def gain(self) -> float:
        """How many times faster a token is."""
        return self.token["dense"] / self.token["sparse"]


class Result(NamedTuple):
    """What the demo found."""

    rows: list[Row]
    picture: Path


def trained_network(layers: int, width: int, steps: int) -> Network:
    """A network of relu_activations.py, and the first half of a text that it was not trained on."""
    rng = np.random.default_rng(1)
    params, losses = trained.train(layers, width, steps, rng)
    text = trained.batch_of(rng, held_out=True)[:1, : trained.LONGEST // 2]
    console.print(
        f"trained {layers} layers of width {width}: loss {losses[-1]:.2f} at step {steps}"
    )
    return Network(f"trained, {layers} x {width}", params, text)


def drawn_network(name: str, config: Config, zeros: float, dtype: str, length: int) -> Network:
    """A network with random weights, and a random prompt."""
    ids = np.random.default_rng(0).integers(0, config.words, (1, length))
    params = jax.jit(initial, static_argnums=(0, 1, 2))(config, zeros, dtype)
    return Network(f"{name}, random", params, jnp.asarray(ids, jnp.int32))


def gain_by_bytes(params: Params, zeros: np.ndarray) -> float:
    """Bytes of the weights over those that a token needs."""
    places = params["places"].nbytes
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) - places
    unread = sum(z * p["down"].nbytes for z, p in zip(zeros, params["blocks"], strict=True))
    return float(whole / (whole - unread))


def compare(network: Network, answer: int, repeats: int) -> Row:
    """Compile both forms, check that they agree, time them in turns. The answer is shorter where
    the network has positions for fewer tokens.

    Raises:
        ValueError: when it has none left for an answer.
        AssertionError: when logits differ, or in float32 an answer.
    """
    name, params, ids = network
    left = len(params["places"]) - ids.shape[1]
    if left < 1:
        raise ValueError(f"--prompt {ids.shape[1]}: {name} has {len(params['places'])} positions")
    answer = min(answer, left)
    room = ids.shape[1] + answer
    starts, steps, states, answers = {}, {}, {}, {}
    for form in FORMS:
        start = jax.jit(functools.partial(prompt, form, room)).lower(params, ids).compile()
        starts[form] = functools.partial(start, params, ids)
        states[form] = starts[form]()
        step = jax.jit(functools.partial(decode, form, answer))
        steps[form] = step.lower(params, *states[form]).compile()
        answers[form] = steps[form](params, *states[form])
    pairs = [(states[f][0], answers[f][1]) for f in FORMS]
    dtype = params["words"].dtype.name
    exact = dtype == "float32" and jax.default_backend() != "gpu"
    logits = [np.stack(pair if exact else pair[:1]) for pair in pairs]
    error = float(np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max())
    bound = TOLERANCE["float32" if exact else "bfloat16"]
    assert error <= bound, f"{name}: the logits differ by {error}"
    same = int((answers["dense"][0] == answers["sparse"][0]).sum())
    assert same == answer or not exact, f"{name}: {answer - same} tokens of the answer differ"
    zeros = np.asarray(jax.jit(zeros_of)(params, ids))
    calls = {f: functools.partial(steps[f], params, *states[f]) for f in FORMS}
    token = {f: ms / answer for f, ms in time_together(calls, repeats).items()}
    memory = {form: peak_of(step) / 1e6 for form, step in steps.items()}
    times, by_bytes = time_together(starts, repeats), gain_by_bytes(params, zeros)
    return Row(name, zeros, times, token, memory, by_bytes, error, answer, same)


def run(networks: Sequence[Any], out: Path, *, answer: int = 24, repeats: int = 5) -> Result:
    """Compare on each network, print one table and save one picture.

    Args:
        networks: functions that make a `Network`; one is held at a time.
        out: the folder of the picture.
        answer: tokens to decode.
        repeats: rounds that each form is timed in.
    """
    rows = [compare(make(), answer, repeats) for make in networks]
    heads = [f"{what},\n{form}" for what in ("prompt\n[ms]", "token\n[ms]") for form in FORMS]
    columns = ("network", "zeros", *heads, "token\nfaster", "by\nbytes", "MB,\nsparse", "same")
    print_table("Decoding with zero activations", columns, [_cells(row) for row in rows], LEGEND)
    worst = max(row.error for row in rows)
    console.print(f"largest difference of a logit: {worst:.1e} of the largest")
    return Result(rows, draw(rows, out))


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.zeros.mean():.3f}",
        *(f"{times[form]:.2f}" for times in (row.prompt, row.token) for form in FORMS),
        f"{row.gain:.2f}x",
        f"{row.by_bytes:.2f}x",
        f"{row.memory['sparse']:.0f}",
        f"{row.same} of {row.answer}",
    ]


def draw(rows: Sequence[Row], out: Path) -> Path:
    """Zeros by layer, and how much faster a token is, beside what is possible."""
    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    labels = [f"{row.name}, {row.zeros.mean():.2f}" for row in rows]
    for row, label in zip(rows, labels, strict=True):
        left.plot(np.arange(len(row.zeros)) + 1, row.zeros, marker=".", label=label)
    left.set(xlabel="layer", ylim=(0, 1.02), title="share of zero activations")
    left.legend(fontsize="small")
    places = np.arange(len(rows))
    right.bar(places - 0.2, [row.gain for row in rows], 0.4, label="measured")
    right.bar(
        places + 0.2, [row.by_bytes for row in rows], 0.4, label="by the bytes of the weights"
    )
    right.axhline(1.0, color="black", linewidth=0.8)
    right.set_xticks(places, labels, rotation=20, ha="right", fontsize="small")
    right.set(title="a token, times as fast as dense")
    right.legend()
    return save(figure, out, "relu_decode.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--full", action="store_true", help="all sizes in bfloat16, for a GPU")
    command.add_argument("--sizes", nargs="*", choices=list(SIZES), help="with random weights")
    command.add_argument("--zeros", nargs="+", type=float, default=[0.9, 0.97])
    command.add_argument("--steps", type=int, help="of training; 0: without the trained network")
    command.add_argument("--prompt", type=int, help="tokens of a random prompt")
    command.add_argument("--answer", type=int, help="tokens to decode")
    command.add_argument("--dtype", choices=list(TOLERANCE), help="bfloat16 with --full")
    chosen = command.parse_args(argv)
    sizes, length, answer, repeats = ["125M"], 64, 24, 11
    layers, width, steps, zeros = 4, 256, 200, chosen.zeros
    configs = SIZES
    if chosen.full:
        sizes, length, answer, repeats = list(SIZES), 512, 64, 20
    if chosen.quick:
        configs = dict.fromkeys(SIZES, Config(2, 128, 256, 64))
        layers, width, steps, zeros = 2, 64, 10, zeros[:1]
        length, answer, repeats = 8, 6, 1
    if chosen.sizes is not None:
        sizes = chosen.sizes
    steps = steps if chosen.steps is None else chosen.steps
    dtype = chosen.dtype or ("bfloat16" if chosen.full else "float32")
    length, answer = chosen.prompt or length, chosen.answer or answer
    networks: list[Any] = []
    if steps:
        networks.append(functools.partial(trained_network, layers, width, steps))
    for size in sizes:
        for share in zeros:
            made = functools.partial(drawn_network, size, configs[size], share, dtype, length)
            networks.append(made)
    return run(networks, chosen.out, answer=answer, repeats=repeats)


if __name__ == "__main__":
    main()
