"""Train an encoder of BERT's shape under masks of 32x64 and 32x1 that change in every step:
weights, gradients and Adam's moments exist only in the blocks that a mask keeps, and attention is
sparse.

It learns to predict hidden words of Python's language reference, and is compared with dense
weights, moments and attention under the same masks. The table has the time of a step and its peak
memory, as XLA plans it. BERT-base is `--layers 12 --width 768`, the default on a GPU. `python
examples/sparse_encoder.py [--quick] [--layers N] [--width N] [--tokens N] [--steps N]
[--memory-only] [--out DIR]`.
"""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from models.common import (
    carried,
    console,
    parser,
    peak_of,
    print_table,
    progress,
    save,
    time_together,
)
from models.sparse_encoder import (
    HIDDEN_WORD,
    Shape,
    Texts,
    Way,
    initial,
    right_words,
    train_step,
)
from models.text import pieces

BLOCKS = ((32, 64), (32, 1))
FORMS = ("multiplied", "sparse")
SPARSITIES = (0.5, 0.8, 0.9, 0.95, 0.98)
TRAINED_AT, CLOSE = 0.8, 0.02  # sparsity of the training runs, and how near accuracies are
Case = tuple[tuple[int, int], float]


class Result(NamedTuple):
    """What the demo found: the share of hidden words that is found, and the loss at each step, by
    block and form; milliseconds and bytes by (block, sparsity) and form; the picture.
    """

    accuracy: dict[tuple[int, int], dict[str, float]]
    losses: dict[tuple[int, int], dict[str, list[float]]]
    milliseconds: dict[Case, dict[str, float]]
    peak: dict[Case, dict[str, int]]
    picture: Path


def batch_of(shape: Shape, rng: np.random.Generator, held_out: bool = False) -> Texts:
    """Sentences side by side, a seventh of their words hidden; every tenth sentence is held out."""
    found = [p for i, p in enumerate(pieces("sentences")) if (i % 10 == 0) == held_out]
    words, ends = np.zeros(shape.tokens, np.int32), np.full(shape.tokens // 4 + 1, shape.tokens)
    place, text = 0, 0
    while place < shape.tokens and text < len(ends) - 1:
        ends[text], text = place, text + 1
        piece = np.asarray(found[rng.integers(len(found))][: min(512, shape.tokens - place)])
        words[place : place + len(piece)] = 2 + piece % (shape.words - 2)
        place += len(piece)
    hide = (rng.random(shape.tokens) < 1 / 7) & (words > 0)
    read = np.where(hide, HIDDEN_WORD, words).astype(np.int32)
    return Texts(*map(jnp.asarray, (read, words, ends.astype(np.int32))))


def train(way: Way, steps: int) -> tuple[float, list[float]]:
    """(share of the held-out words that is found, loss at each step)."""
    rng, losses, state = np.random.default_rng(1), [], initial(way)
    with progress() as bar:
        task = bar.add_task(f"{way.block[0]}x{way.block[1]} {way.form}", total=steps)
        for i in range(steps):
            state, loss = train_step(state, batch_of(way.shape, rng), jax.random.key(i), way=way)
            losses.append(float(loss))
            bar.advance(task)
    score = jax.jit(functools.partial(right_words, way=way))
    tests = [batch_of(way.shape, rng, held_out=True) for _ in range(8)]
    counts = [np.asarray(score(state.params, state.kept, texts)) for texts in tests]
    found = np.sum(counts, axis=0)
    return float(found[0] / found[1]), losses


def compiled_step(way: Way) -> Any:
    """A step of training, compiled."""
    state, texts = initial(way), batch_of(way.shape, np.random.default_rng(0))
    return train_step.lower(state, texts, jax.random.key(0), way=way).compile()


def compare(shape: Shape, sparsities: Sequence[float], repeats: int) -> tuple[Any, Any]:
    """(milliseconds, bytes) of a step by case and form; `repeats` 0: bytes alone. The forms are
    timed in turns.
    """
    times: dict[Case, dict[str, float]] = {}
    peak: dict[Case, dict[str, int]] = {}
    cases = list(itertools.product(BLOCKS, sparsities))
    with progress() as bar:
        task = bar.add_task("comparing a step", total=len(cases))
        for block, sparsity in cases:
            ways = {form: Way(shape, block, 1 - sparsity, form) for form in FORMS}
            steps = {form: compiled_step(way) for form, way in ways.items()}
            peak[block, sparsity] = {form: peak_of(step) for form, step in steps.items()}
            if repeats:
                times[block, sparsity] = time_together(
                    {form: stepping(way, steps[form]) for form, way in ways.items()}, repeats
                )
            bar.advance(task)
    return times, peak


def stepping(way: Way, step: Any) -> Any:
    """A call that takes one more step."""
    texts, key = batch_of(way.shape, np.random.default_rng(0)), jax.random.key(0)
    return carried(lambda state: step(state, texts, key)[0], initial(way))


def run(
    shape: Shape, out: Path, steps: int, sparsities: Sequence[float] = SPARSITIES, repeats: int = 5
) -> Result:
    """Train both forms under both masks, time steps at each sparsity, print a table and save a
    picture. Without steps nothing is trained.

    Raises:
        AssertionError: when the accuracies of the two forms differ by more than two percent.
    """
    accuracy: dict[Any, dict[str, float]] = {}
    losses: dict[Any, dict[str, list[float]]] = {}
    for block in BLOCKS if steps else ():
        ways = {form: Way(shape, block, 1 - TRAINED_AT, form) for form in FORMS}
        found = {form: train(way, steps) for form, way in ways.items()}
        accuracy[block] = {form: share for form, (share, _) in found.items()}
        losses[block] = {form: curve for form, (_, curve) in found.items()}
        shares = ", ".join(f"{form} {100 * s:.1f} %" for form, s in accuracy[block].items())
        console.print(f"{block[0]}x{block[1]}, {steps} steps: hidden words found: {shares}")
        assert abs(accuracy[block]["sparse"] - accuracy[block]["multiplied"]) <= CLOSE
    times, peak = compare(shape, sparsities, repeats)
    rows = [row_of(case, times.get(case), peak[case]) for case in peak]
    title = f"a step of Adam: {shape.layers} layers, width {shape.width}, {shape.tokens} tokens"
    heads = ("masked dense\n[ms]", "jaxsparse\n[ms]", "speed-up")
    memory = ("masked dense\n[MB]", "jaxsparse\n[MB]", "memory")
    print_table(title, ("block", "sparsity", *heads, *memory), rows, "memory: peak of a step.")
    return Result(accuracy, losses, times, peak, draw(losses, times, peak, sparsities, out))


def row_of(case: Case, times: dict[str, float] | None, peak: dict[str, int]) -> list[str]:
    """Cells of the table."""
    (block, sparsity), theirs, mine = case, peak["multiplied"], peak["sparse"]
    taken = ["", "", ""]
    if times:
        ratio = times["multiplied"] / times["sparse"]
        taken = [*(f"{times[form]:.1f}" for form in FORMS), f"{ratio:.2f}x"]
    share = [f"{theirs / 1e6:.1f}", f"{mine / 1e6:.1f}", f"{mine / theirs:.2f}x"]
    return [f"{block[0]}x{block[1]}", f"{sparsity:g}", *taken, *share]


def draw(losses: Any, times: Any, peak: Any, sparsities: Sequence[float], out: Path) -> Path:
    """Losses over the steps, and the ratios over sparsity."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for block, form in itertools.product(losses, FORMS):
        style = "-" if form == "sparse" else ":"
        left.plot(losses[block][form], style, label=f"{block[0]}x{block[1]} {form}")
    left.set(xlabel="step", ylabel="cross-entropy of hidden words", title=f"{TRAINED_AT:g} sparse")
    for axis, what, title in (
        (middle, times, "times faster"),
        (right, peak, "share of the memory"),
    ):
        for block in BLOCKS if what else ():
            found = [what[block, s] for s in sparsities]
            ratios = [f["multiplied"] / f["sparse"] for f in found]
            shown = ratios if axis is middle else [1 / r for r in ratios]
            axis.plot(sparsities, shown, marker="o", label=f"{block[0]}x{block[1]}")
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set(xlabel="sparsity", title=f"{title} than masked dense" if axis is middle else title)
    for axis in (left, middle, right):
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    return save(figure, out, "sparse_encoder.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    for name in ("layers", "width", "tokens", "steps"):
        command.add_argument(f"--{name}", type=int)
    command.add_argument("--memory-only", action="store_true", help="compile steps, run none")
    chosen = command.parse_args(argv)
    gpu = jax.default_backend() == "gpu"
    layers, width, tokens = (
        (1, 64, 128) if chosen.quick else (12, 768, 4096) if gpu else (2, 256, 512)
    )
    words, steps = (128, 12) if chosen.quick else (2048, 80)
    shape = Shape(chosen.layers or layers, chosen.width or width, chosen.tokens or tokens, words)
    steps = 0 if chosen.memory_only else steps if chosen.steps is None else chosen.steps
    repeats = 0 if chosen.memory_only else 2 if chosen.quick else 5
    sparsities = SPARSITIES[:2] if chosen.quick else SPARSITIES
    return run(shape, chosen.out, steps, sparsities, repeats)


if __name__ == "__main__":
    main()
