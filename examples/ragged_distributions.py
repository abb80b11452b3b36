"""An encoder on batches with lengths like those of twelve data sets: padded, with linear layers at
the tokens that count (`js.nn.linen.MaskedDense`), and packed end to end with `js.sparse_attention`.

Random weights, the same ones in every form. `python examples/ragged_distributions.py
[--quick | --full] [--dtype bfloat16] [--out DIR]`; `--full` is BERT-base, for a GPU.
"""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ragged_encoder import TF32_TOLERANCE, TOLERANCE, difference

from models.common import console, grid_figure, parser, print_table, progress, save, time_together
from models.ragged import Encoder, encode
from models.text import VOCABULARY, Batch

FORMS = ("padded", "masked", "packed")
LONGEST = 512
PIECES = 1.3  # word pieces of a word: an assumption
STEP = 16  # padded lengths are multiples of it
PACKED_STEP = 64  # packed lengths likewise


class Lengths(NamedTuple):
    """Lengths like those of a data set's inputs: lognormal, with about the mean number of words
    that such inputs have. Neither the mean nor `sigma`, of the logarithm, is taken from the data.
    """

    name: str
    words: float
    sigma: float

    def draw(self, rows: int, seed: int) -> np.ndarray:
        """int32[rows]: word pieces with the two of BERT at the ends, at most LONGEST."""
        mean = PIECES * self.words
        generator = np.random.default_rng([seed, rows, *self.name.encode()])
        drawn = generator.lognormal(math.log(mean) - self.sigma**2 / 2, self.sigma, rows)
        return np.clip(np.rint(drawn) + 2, 3, LONGEST).astype(np.int32)


DISTRIBUTIONS = (
    Lengths("CoLA", 7.7, 0.5),
    Lengths("TREC questions", 10, 0.4),
    Lengths("SST-2", 19, 0.55),
    Lengths("MR", 20, 0.5),
    Lengths("Subj", 23, 0.45),
    Lengths("SNLI pairs", 22.4, 0.4),
    Lengths("MultiNLI pairs", 33.7, 0.5),
    Lengths("Amazon reviews", 91.9, 0.7),
    Lengths("Yahoo answers", 108.4, 0.9),
    Lengths("SQuAD", 127, 0.4),
    Lengths("Yelp 2013", 151.6, 0.7),
    Lengths("IMDb", 234, 0.6),
)


class Row(NamedTuple):
    """One batch: milliseconds and megabytes of temporaries by form, and the largest difference."""

    name: str
    batch: Batch
    times: dict[str, float]
    memory: dict[str, float]
    error: float

    @property
    def gain(self) -> float:
        """Times faster than padded."""
        return self.times["padded"] / self.times["packed"]


def make_batch(lengths: np.ndarray, seed: int) -> Batch:
    """Random tokens, padded to the longest row of the batch (rounded up to STEP)."""
    longest = -(-int(lengths.max()) // STEP) * STEP
    ids = np.random.default_rng(seed).integers(1, VOCABULARY, (len(lengths), longest), np.int32)
    return Batch(np.where(np.arange(longest) < lengths[:, None], ids, 0), lengths)


def temporaries(call: Any) -> float:
    """Megabytes that XLA allocates beside arguments and results; nan where it does not say."""
    analysis = call.memory_analysis()
    return math.nan if analysis is None else analysis.temp_size_in_bytes / 1e6


def compare(encoder: Encoder, params: Any, name: str, batch: Batch, repeats: int) -> Row:
    """Compile the forms for the batch, check that they agree, time them in turns.

    Raises:
        AssertionError: when a form differs from padded at a token that counts.
    """
    given = params, jnp.asarray(batch.ids), jnp.asarray(batch.lengths)
    packed = min(-(-int(batch.lengths.sum()) // PACKED_STEP) * PACKED_STEP, batch.ids.size)
    forms: dict[str, Callable[..., Any]] = {
        form: functools.partial(encode, encoder, form) for form in FORMS[:2]
    }
    forms["packed"] = functools.partial(encoder.apply, capacity=packed)
    calls = {form: jax.jit(call).lower(*given).compile() for form, call in forms.items()}
    results = {form: call(*given) for form, call in calls.items()}
    error = max(difference(results[form], results["padded"]) for form in FORMS[1:])
    dtype = jnp.dtype(encoder.dtype).name
    tf32 = jax.default_backend() == "gpu" and dtype == "float32"
    bound = TF32_TOLERANCE if tf32 else TOLERANCE[dtype]
    assert error <= bound, f"{name}: the forms differ by {error}"
    memory = {form: temporaries(call) for form, call in calls.items()}
    timed = {form: functools.partial(call, *given) for form, call in calls.items()}
    return Row(name, batch, time_together(timed, repeats), memory, error)


def run(
    size: tuple[int, int],
    out: Path,
    *,
    batches: Sequence[int] = (8, 32),
    chosen: Sequence[Lengths] = DISTRIBUTIONS,
    dtype: str = "float32",
    repeats: int = 3,
    seed: int = 0,
) -> list[Row]:
    """Compare on each distribution and batch size, print one table and save one picture.

    Args:
        size: layers and width of the encoder.
        out: the folder of the picture.
        batches: rows of a batch.
        chosen: distributions of lengths.
        dtype: of the computation.
        repeats: rounds that each form is timed in.
        seed: of the lengths and tokens.
    """
    layers, d = size
    encoder = Encoder(layers, d, VOCABULARY, jnp.dtype(dtype))
    first = make_batch(np.full(1, STEP, np.int32), seed)
    params = jax.jit(encoder.init)(jax.random.key(0), *map(jnp.asarray, first))
    params = jax.tree.map(lambda v: v.astype(encoder.dtype), params)
    found = []
    with progress() as bar:
        task = bar.add_task("comparing", total=len(chosen) * len(batches))
        for rows in batches:
            for each in chosen:
                batch = make_batch(each.draw(rows, seed), seed)
                found.append(compare(encoder, params, each.name, batch, repeats))
                bar.advance(task)
    heads = [f"{form}\n[{unit}]" for unit in ("ms", "MB") for form in FORMS]
    columns = ("lengths", "batch", "padded\nto", "share", *heads, "over\npadded", "over\nmasked")
    title = f"encoder of {layers} layers, d {d}, {dtype}, {jax.devices()[0].device_kind}"
    print_table(title, columns, [_cells(row) for row in found])
    reached = sum(row.gain >= 1.8 for row in found)
    worst = max(row.error for row in found)
    console.print(f"1.8x padded on {reached} of {len(found)}; largest difference {worst:.1e}")
    draw(found, out)
    return found


def _cells(row: Row) -> list[str]:
    rows, longest = row.batch.ids.shape
    return [
        row.name,
        *(str(rows), str(longest), f"{row.batch.share:.2f}"),
        *(f"{row.times[form]:.1f}" for form in FORMS),
        *(f"{row.memory[form]:.1f}" for form in FORMS),
        f"{row.gain:.2f}x",
        f"{row.times['masked'] / row.times['packed']:.2f}x",
    ]


def draw(found: Sequence[Row], out: Path) -> Path:
    """The speed-up over the share of tokens that count, a colour for each batch size."""
    figure, axes = grid_figure(1, 1, 8, 5)
    plot = axes[0][0]
    for rows in sorted({len(row.batch.lengths) for row in found}):
        shown = [row for row in found if len(row.batch.lengths) == rows]
        x, y = [row.batch.share for row in shown], [row.gain for row in shown]
        plot.scatter(x, y, label=f"batch {rows}")
        for row in shown:
            plot.annotate(row.name, (row.batch.share, row.gain), fontsize=7)
    shares = np.linspace(min(row.batch.share for row in found), 1, 50)
    plot.plot(shares, 1 / shares, linestyle=":", color="gray", label="1 / share")
    plot.axhline(1.8, color="black", linewidth=0.8)
    plot.set(xlabel="mean length over the longest", ylabel="times faster than padded")
    plot.set(xticks=np.arange(0.2, 1.01, 0.2), yticks=np.arange(1, 6))
    plot.legend()
    return save(figure, out, "ragged_distributions.png")


def main(argv: Sequence[str] | None = None) -> list[Row]:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--full", action="store_true", help="BERT-base, 20 rounds")
    command.add_argument("--dtype", choices=list(TOLERANCE), default="float32")
    chosen = command.parse_args(argv)
    if chosen.quick:
        few = DISTRIBUTIONS[::6]
        return run((1, 64), chosen.out, batches=(4,), chosen=few, dtype=chosen.dtype)
    size, repeats = ((12, 768), 20) if chosen.full else ((4, 256), 5)
    return run(size, chosen.out, dtype=chosen.dtype, repeats=repeats)


if __name__ == "__main__":
    main()
