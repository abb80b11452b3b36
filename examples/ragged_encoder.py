"""An encoder of BERT-base's shape on batches of real sentences: the padded batch against linear
layers at the tokens that count (`js.nn.linen.MaskedDense`, one index for all), and against tokens
packed side by side: with attention dense in each row, and with `js.sparse_attention` on the packed
rows.

Random weights, the same ones in every form. `python
examples/ragged_encoder.py [--quick] [--text paragraphs] [--dtype bfloat16] [--out DIR]`.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.common import (
    console,
    grid_figure,
    parser,
    print_table,
    progress,
    save,
    time_together,
    working,
)
from models.ragged import FORMS, Encoder, encode
from models.text import LONGEST, VOCABULARY, Batch, batch_of_share

SHARES = (0.25, 0.4, 0.5, 1.0)
#: Largest difference over the largest value that passes.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}
TF32_TOLERANCE = 2e-2


class Result(NamedTuple):
    """What the demo found, for each share of SHARES in turn: milliseconds and largest differences
    by form.
    """

    shares: list[float]
    times: list[dict[str, float]]
    errors: list[dict[str, float]]
    picture: Path


def difference(got: jax.Array, want: jax.Array) -> float:
    """Largest difference over the largest value; inf for NaN."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = np.abs(a - b).max() / np.abs(b).max()
    return float(error) if np.isfinite(error) else float("inf")


def run(quick: bool, out: Path, unit: str = "sentences", dtype: str = "float32") -> Result:
    """Compare on a batch of each share, print one table and save one picture.

    Raises:
        AssertionError: when a form differs at a token that counts.
    """
    layers, d, rows = (2, 128, 8) if quick else (12, 768, 32)
    encoder = Encoder(layers, d, VOCABULARY, jnp.dtype(dtype))
    batches = [full_batch(unit, rows) if s == 1 else batch_of_share(unit, s, rows) for s in SHARES]
    with working("drawing the weights"):
        params = jax.jit(encoder.init)(jax.random.key(0), *map(jnp.asarray, batches[0]))
        params = jax.tree.map(lambda v: v.astype(encoder.dtype), params)  # as they are used
    calls = {form: jax.jit(functools.partial(encode, encoder, form)) for form in FORMS}
    gpu = jax.default_backend() == "gpu"
    bound = TF32_TOLERANCE if gpu and dtype == "float32" else TOLERANCE[dtype]
    times, errors = [], []
    repeats, calls_in_a_row = (7, 20) if gpu else (3, 1)
    with progress() as bar:
        task = bar.add_task("comparing", total=len(batches) * repeats)
        for batch in batches:
            given = params, *map(jnp.asarray, batch)
            results = {form: call(*given) for form, call in calls.items()}
            errors.append({f: difference(y, results["padded"]) for f, y in results.items()})
            assert max(errors[-1].values()) <= bound, f"the forms differ: {errors[-1]}"
            timed = {f: _in_a_row(calls_in_a_row, call, *given) for f, call in calls.items()}
            taken = time_together(timed, repeats, lambda: bar.advance(task))
            times.append({f: t / calls_in_a_row for f, t in taken.items()})
    title = f"encoder of {layers} layers, d {d}, {dtype}, {jax.devices()[0].device_kind}"
    heads = [f"{form}\n[ms]" for form in FORMS]
    columns = (f"batch of {rows}", "mean\nlength", "of the\nlongest", *heads, *FORMS[1:])
    print_table(title, columns, [_cells(unit, *r) for r in zip(batches, times, strict=True)])
    worst = max(max(e.values()) for e in errors)
    console.print(f"the forms agree at every token that counts: {worst:.1e} of {bound:g}")
    shares = [batch.share for batch in batches]
    return Result(shares, times, errors, draw(batches, times, out))


def _in_a_row(count: int, call: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """`count` calls, none of which is waited for while the next one can start."""
    return lambda: [call(*args) for _ in range(count)][-1]


def _cells(unit: str, batch: Batch, times: dict[str, float]) -> list[str]:
    return [
        f"{unit}, padded to {batch.ids.shape[1]}",
        f"{batch.lengths.mean():.1f}",
        f"{batch.share:.2f}",
        *(f"{times[form]:.2f}" for form in FORMS),
        *(f"{times['padded'] / times[form]:.2f}x" for form in FORMS[1:]),
    ]


def full_batch(unit: str, rows: int) -> Batch:
    """A batch in which every token counts."""
    batch = batch_of_share(unit, 1.0, rows)
    full = np.where(batch.ids > 0, batch.ids, batch.ids.max())
    return Batch(full, np.full(rows, full.shape[1], np.int32))


def draw(batches: list[Batch], times: list[dict[str, float]], out: Path) -> Path:
    """The tokens that count in the batch nearest to 40 %, and the speed-up over the share."""
    figure, axes = grid_figure(1, 2, 11, 5)
    left, right = axes[0]
    shown = batches[SHARES.index(0.4)]
    left.imshow(shown.ids > 0, aspect="auto", cmap="Blues", interpolation="nearest")
    left.set(title=f"tokens that count: {100 * shown.share:.0f} %", xlabel="place", ylabel="row")
    shares = [batch.share for batch in batches]
    for form in FORMS[1:]:
        right.plot(shares, [t["padded"] / t[form] for t in times], marker="o", label=form)
    right.plot(shares, 1 / np.asarray(shares), linestyle=":", color="gray", label="1 / share")
    right.axhline(1.0, color="black", linewidth=0.8)
    right.set(
        xticks=np.round(shares, 2),
        yticks=np.arange(1, 5),
        xlabel="mean length over the longest",
        ylabel="times faster than padded",
        title=jax.devices()[0].device_kind,
    )
    right.legend()
    return save(figure, out, "ragged_encoder.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--text", choices=list(LONGEST), default="sentences")
    command.add_argument("--dtype", choices=list(TOLERANCE), default="float32")
    chosen = command.parse_args(argv)
    return run(chosen.quick, chosen.out, chosen.text, chosen.dtype)


if __name__ == "__main__":
    main()
