"""Transformers for long inputs: Longformer, whose global tokens are at positions that change with
the input, and a decoder of music like Museformer, whose bars change with the input, too.

Random weights, the same ones in every form: dense attention without a mask ("full"), with the mask
("dense", cuDNN's on a GPU in bfloat16), what each chunk of queries attends to gathered in jax.numpy
("banded"), and `js.sparse_attention` with a mask that is built inside `jit` ("sparse"). One
compilation serves two inputs, and the last three forms must agree on both.

`python examples/long_attention.py [--quick | --full] [--networks longformer museformer]
[--lengths T ...] [--layers N] [--batch N] [--dtype bfloat16] [--out DIR]`. `--full` has the papers'
sizes and 2,048 to 16,384 tokens, for a GPU; without it there are two layers of the papers' widths.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ragged_encoder import TF32_TOLERANCE, TOLERANCE, difference

from models.common import console, parser, peak_of, print_table, progress, save, time_together
from models.long.config import KINDS, PAPERS, Config, inputs
from models.long.masks import dense_mask
from models.long.network import FORMS, block_mask, forward, initial

LENGTHS, FULL_LENGTHS = (1024, 2048, 4096), (2048, 4096, 8192, 16384)
LEGEND = (
    "listed: share of the scores that are in the blocks that the mask lists. Times are medians of "
    "calls of the forms in turns; those of dense and sparse contain building the mask. "
    "Memory is XLA's: arguments, results and temporaries; the working memory of jaxsparse's CPU "
    "kernels is not in it."
)


class Row(NamedTuple):
    """One network at one length. `attended`: share of the pairs of queries and keys that attend.
    `states` int[Q,C]: 1 for a partial block, 2 for a full one. Milliseconds of the forms and of
    building the mask, megabytes of the forms, the largest difference from "dense".
    """

    kind: str
    tokens: int
    attended: float
    states: np.ndarray
    times: dict[str, float]
    memory: dict[str, float]
    error: float

    @property
    def listed(self) -> float:
        """Share of the scores in listed blocks."""
        return float((self.states > 0).mean())

    def gain(self, over: str) -> float:
        """How many times faster than another form."""
        return self.times[over] / self.times["sparse"]


class Result(NamedTuple):
    """What the demo found."""

    rows: list[Row]
    picture: Path


def compare(config: Config, tokens: int, batch: int, dtype: str, repeats: int) -> Row:
    """Compile the forms, check that they agree on two inputs, time them in turns.

    Raises:
        AssertionError: when "banded" or "sparse" differs from "dense".
    """
    params = jax.tree.map(lambda v: v.astype(dtype), initial(config, tokens))
    drawn = [inputs(config, batch, tokens, seed) for seed in (0, 1)]
    calls = {
        form: jax.jit(functools.partial(forward, config, form)).lower(params, *drawn[0]).compile()
        for form in FORMS
    }
    error = 0.0
    for given in drawn:
        want = np.asarray(calls["dense"](params, *given), np.float32)
        for form in FORMS[2:]:
            error = max(error, difference(calls[form](params, *given), want))
    tf32 = jax.default_backend() == "gpu" and dtype == "float32"
    bound = TF32_TOLERANCE if tf32 else TOLERANCE[dtype]
    assert error <= bound, f"{config.kind}, {tokens} tokens: the forms differ by {error}"
    build = jax.jit(functools.partial(block_mask, config, tokens))
    attended = jax.jit(lambda given: dense_mask(config, tokens, given).mean(dtype=jnp.float32))
    mask, share = build(drawn[0][1]), float(attended(drawn[0][1]))
    assert not mask.overflow, f"{config.kind}, {tokens} tokens: more partial blocks than reserved"
    listed, full = (np.asarray(bits)[0, 0] for bits in (mask.block_bits(), mask.full_block_bits()))
    timed: dict[str, Callable[[], Any]] = {
        form: functools.partial(call, params, *drawn[0]) for form, call in calls.items()
    }
    timed["mask"] = functools.partial(build, drawn[0][1])
    memory = {form: peak_of(call) / 1e6 for form, call in calls.items()}
    times = time_together(timed, repeats)
    return Row(config.kind, tokens, share, listed.astype(int) + full, times, memory, error)


def run(
    configs: Sequence[Config],
    lengths: Sequence[int],
    out: Path,
    *,
    batch: int = 1,
    dtype: str = "float32",
    repeats: int = 3,
) -> Result:
    """Compare each network at each length, print one table and save one picture.

    Args:
        configs: sizes of the networks.
        lengths: numbers of tokens, multiples of every `reach`.
        out: the folder of the picture.
        batch: sequences in a call.
        dtype: of the computation.
        repeats: rounds that each form is timed in.

    Raises:
        ValueError: for a length that does not fit.
    """
    for tokens in lengths:
        for config in configs:
            if tokens < config.reach or tokens % config.reach:
                raise ValueError(f"--lengths has {tokens}; it takes multiples of {config.reach}")
    rows = []
    with progress() as bar:
        task = bar.add_task("comparing", total=len(configs) * len(lengths))
        for config in configs:
            for tokens in lengths:
                rows.append(compare(config, tokens, batch, dtype, repeats))
                bar.advance(task)
    sizes = "; ".join(f"{c.kind} {c.layers} layers, d {c.d}" for c in configs)
    heads = [f"{form}\n[ms]" for form in FORMS] + [f"over\n{form}" for form in FORMS[1:3]]
    columns = ("tokens", "listed", *heads, *(f"{form}\n[MB]" for form in FORMS[1:]))
    print_table(f"{sizes}; {dtype}", columns, [_cells(row) for row in rows], LEGEND)
    slowest, error = max(row.times["mask"] for row in rows), max(row.error for row in rows)
    console.print(
        f"building the mask: at most {slowest:.1f} ms; largest difference from dense, on two "
        f"inputs of each row: {error:.1e} of the largest value"
    )
    return Result(rows, draw(configs, rows, out))


def _cells(row: Row) -> list[str]:
    return [
        f"{row.kind} {row.tokens}",
        f"{row.listed:.3f}",
        *(f"{row.times[form]:.{1 if row.times[form] < 100 else 0}f}" for form in FORMS),
        *(f"{row.gain(form):.2f}x" for form in FORMS[1:3]),
        *(f"{row.memory[form]:.0f}" for form in FORMS[1:]),
    ]


def draw(configs: Sequence[Config], rows: Sequence[Row], out: Path) -> Path:
    """For each network the blocks of its mask, and the time and memory of each form by length."""
    figure = Figure(figsize=(13, 1 + 4 * len(configs)), layout="constrained")
    axes = figure.subplots(len(configs), 3, squeeze=False)
    for config, (left, middle, right) in zip(configs, axes, strict=True):
        own = [row for row in rows if row.kind == config.kind]
        left.imshow(own[0].states, cmap="Oranges", vmin=0, vmax=2, aspect="auto")
        left.set(title=f"{config.kind}, {own[0].tokens} tokens: full and partial blocks")
        left.set(xlabel="blocks of keys", ylabel="blocks of queries")
        lengths = [row.tokens for row in own]
        for form in FORMS:
            middle.plot(lengths, [row.times[form] for row in own], marker="o", label=form)
            right.plot(lengths, [row.memory[form] for row in own], marker="o", label=form)
        for plot, what in ((middle, "ms"), (right, "MB")):
            plot.set(xscale="log", yscale="log", xlabel="tokens", ylabel=what)
            plot.set_xticks(lengths, [str(n) for n in lengths], minor=False)
            plot.set_xticks([], minor=True)
        middle.legend()
    return save(figure, out, "long_attention.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--full", action="store_true", help="the papers' sizes, for a GPU")
    command.add_argument("--networks", nargs="+", choices=KINDS, default=list(KINDS))
    command.add_argument("--lengths", nargs="+", type=int, help="numbers of tokens")
    command.add_argument("--layers", type=int, help="of every network")
    command.add_argument("--batch", type=int, default=1)
    command.add_argument("--dtype", choices=list(TOLERANCE), help="bfloat16 with --full")
    chosen = command.parse_args(argv)
    configs = [PAPERS[kind] for kind in chosen.networks]
    lengths = FULL_LENGTHS if chosen.full else LENGTHS
    layers = chosen.layers or (None if chosen.full or chosen.quick else 2)
    if chosen.quick:
        configs = [
            c._replace(heads=1, reach=64, bar=(16, 48), block=(32, 32), layers=1) for c in configs
        ]
        lengths = (256,)
    if layers:
        configs = [c._replace(layers=layers) for c in configs]
    dtype = chosen.dtype or ("bfloat16" if chosen.full else "float32")
    repeats = 1 if chosen.quick else 20 if chosen.full else 3
    given = chosen.lengths or lengths
    return run(configs, given, chosen.out, batch=chosen.batch, dtype=dtype, repeats=repeats)


if __name__ == "__main__":
    main()
