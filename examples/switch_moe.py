"""An encoder-decoder of the shape of Switch-base: inference (both halves, no cache) and a training
step, time and memory over the number of experts.

Random weights, the same ones for padded experts with the paper's capacity, which drop tokens, for
padded experts with room for the longest of this batch, for `jax.lax.ragged_dot` and for
`js.nn.linen.MoE`; "dense" is the network without experts. The last three must agree. Where torch is
installed, its grouped product runs the experts of one layer beside `js.grouped_matmul`.

`python examples/switch_moe.py [--quick | --full] [--experts N ...] [--layers N] [--batch N]
[--dtype bfloat16] [--out DIR]`. `--full` is Switch-base with 8 to 256 experts, for a GPU; 256
experts are 29 GB of bfloat16 weights, and a training step holds as much again for their gradients.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxsparse as js
from models.common import console, parser, peak_of, print_table, progress, save, time_together
from models.switch import (
    FORMS,
    Batch,
    Config,
    Params,
    batch_of,
    forward,
    initial,
    loss_of,
    train_step,
)

PASSES = ("inference", "training step")
RATE = 1e-3
_loss = jax.jit(loss_of)
BOUND = {"float32": 1e-4, "bfloat16": 0.2}  # of the logits' root mean square
SMALL = Config(2, 256, 1024, 0, 1024, (128, 128))
BASE = Config(12, 768, 3072, 0, 32128, (512, 128))
QUICK = Config(2, 64, 128, 0, 64, (16, 8))
LEGEND = (
    "dense: the network without experts. padded: a capacity of 1.25 of the mean, as in the paper; "
    "dropped: tokens beyond it, mean over the layers. whole: padded to the longest expert of this "
    "very batch. Medians of calls in turns. Memory is XLA's: "
    "weights, results (a step updates its weights in place) and temporaries; the working memory of "
    "jaxsparse's CPU kernels is not in it."
)


class Row(NamedTuple):
    """One number of experts and one pass: milliseconds and megabytes by form, the share of tokens
    that padded dropped, the difference of whole and sparse from ragged: of the logits, over their
    root mean square, or of the loss.
    """

    experts: int
    what: str
    times: dict[str, float]
    memory: dict[str, float]
    dropped: float
    error: float

    def gain(self, over: str) -> float:
        """How many times faster than another form."""
        return self.times[over] / self.times["sparse"]


class Result(NamedTuple):
    """Rows; for each number of experts the milliseconds of one layer's experts by `torch` and by
    `js.grouped_matmul`, where torch can run them; the picture.
    """

    rows: list[Row]
    torch: dict[int, dict[str, float]]
    picture: Path


def compare(config: Config, batch: Batch, dtype: str, repeats: int) -> list[Row]:
    """Both passes: compile the forms, check that three of them agree, time them in turns.

    Raises:
        AssertionError: when they do not agree.
    """
    weights = {"dense": initial(config, "dense", dtype), "experts": initial(config, "", dtype)}
    owner = {form: "dense" if form == "dense" else "experts" for form in FORMS}
    ragged = jax.jit(functools.partial(forward, config, "ragged")).lower(weights["experts"], batch)
    runs: dict[str, Any] = {"ragged": ragged.compile()}
    found = {"ragged": runs["ragged"](weights["experts"], batch)}
    config = config._replace(longest=float(found["ragged"].longest))
    for form in (f for f in FORMS if f != "ragged"):
        call = jax.jit(functools.partial(forward, config, form))
        runs[form] = call.lower(weights[owner[form]], batch).compile()
        found[form] = runs[form](weights[owner[form]], batch)
    low = dtype != "float32" or jax.default_backend() == "gpu"  # a near tie takes another expert
    bounds = (BOUND["bfloat16"], 1e-2) if low else (BOUND["float32"], 1e-5)
    want, loss = np.asarray(found["ragged"].logits, np.float32), _loss(found["ragged"], batch)
    error = apart = 0.0
    for form in ("whole", "sparse"):
        logits = np.asarray(found[form].logits, np.float32)
        error = max(error, float(np.sqrt(((logits - want) ** 2).mean() / (want**2).mean())))
        apart = max(apart, abs(float(_loss(found[form], batch) / loss - 1)))
    assert error <= bounds[0], f"{config.experts} experts: logits differ by {error}"
    assert apart <= bounds[1], f"{config.experts} experts: losses differ by {apart}"
    dropped = float(found["padded"].dropped)
    del found, logits, want
    runs = {form: runs[form] for form in FORMS}
    calls = {f: functools.partial(run, weights[owner[f]], batch) for f, run in runs.items()}
    times = time_together(calls, repeats)
    memory = {form: peak_of(run) / 1e6 for form, run in runs.items()}
    rows = [Row(config.experts, PASSES[0], times, memory, dropped, error)]
    steps: dict[str, Any] = {}
    for form in FORMS:
        step = jax.jit(functools.partial(train_step, config, form, RATE), donate_argnums=0)
        steps[form] = step.lower(weights[owner[form]], batch).compile()
    del calls
    trained = {f: _step_of(step, weights, owner[f], batch) for f, step in steps.items()}
    times = time_together(trained, repeats)
    memory = {form: peak_of(step) / 1e6 for form, step in steps.items()}
    return [*rows, Row(config.experts, PASSES[1], times, memory, dropped, apart)]


def _step_of(
    step: Any, weights: dict[str, Params], owner: str, batch: Batch
) -> Callable[[], jax.Array]:
    """A call that updates the weights that forms share: there is one copy of them."""

    def call() -> jax.Array:
        weights[owner], loss = step(weights[owner], batch)
        return loss

    return call


def beside_torch(config: Config, tokens: int, repeats: int) -> dict[str, float]:
    """Milliseconds of one layer's experts on sorted bfloat16 rows, equal shares: by torch's grouped
    product and by ours. Empty where torch is missing, or does not see the device that JAX uses.
    """
    if importlib.util.find_spec("torch") is None:
        return {}
    torch: Any = importlib.import_module("torch")
    if jax.default_backend() == "gpu" and not torch.cuda.is_available():
        return {}
    multiply = getattr(torch.nn.functional, "grouped_mm", None) or getattr(
        torch, "_grouped_mm", None
    )
    if multiply is None:
        return {}
    rng = np.random.default_rng(0)
    shapes = (tokens, config.d), (config.experts, config.d, config.hidden)
    x, up = (jnp.asarray(rng.standard_normal(s, np.float32), jnp.bfloat16) for s in shapes)
    down = jnp.swapaxes(up, 1, 2)
    each = np.bincount(np.arange(tokens) % config.experts, minlength=config.experts)
    sizes = jnp.asarray(each, jnp.int32)
    theirs = [torch.from_dlpack(v).clone() for v in (x, up, down, jnp.cumsum(sizes))]

    def grouped() -> None:
        with torch.inference_mode():
            h = torch.relu(multiply(theirs[0], theirs[1], offs=theirs[3].int()))
            multiply(h, theirs[2], offs=theirs[3].int())
            if torch.cuda.is_available():
                torch.cuda.synchronize()

    @jax.jit
    def ours(x: jax.Array, up: jax.Array, down: jax.Array, sizes: jax.Array) -> jax.Array:
        return js.grouped_matmul(jax.nn.relu(js.grouped_matmul(x, up, sizes)), down, sizes)

    calls: dict[str, Callable[[], Any]] = {
        "torch": grouped,
        "sparse": functools.partial(ours, x, up, down, sizes),
    }
    return time_together(calls, repeats)


def run(
    config: Config,
    experts: Sequence[int],
    out: Path,
    *,
    batch: int = 4,
    dtype: str = "float32",
    repeats: int = 5,
) -> Result:
    """Compare at each number of experts, print one table and save one picture.

    Args:
        config: sizes; its number of experts is replaced.
        experts: how many experts.
        out: the folder of the picture.
        batch: sequences in a call.
        dtype: of weights and computation.
        repeats: rounds that each form is timed in.
    """
    rows: list[Row] = []
    torch: dict[int, dict[str, float]] = {}
    given = batch_of(config, batch)
    with progress() as bar:
        task = bar.add_task("comparing", total=len(experts))
        for count in experts:
            sized = config._replace(experts=count)
            rows += compare(sized, given, dtype, repeats)
            torch[count] = beside_torch(sized, given.source.size, repeats)
            bar.advance(task)
    heads = [f"{form}\n[ms]" for form in FORMS] + [f"over\n{form}" for form in FORMS[2:4]]
    columns = ("experts", *heads, *(f"{form}\n[MB]" for form in FORMS[2:]), "drop-\nped")
    title = f"{config.layers} + {config.layers} layers, d {config.d}, hidden {config.hidden}"
    title += f"; {batch} x {config.tokens[0]} + {config.tokens[1]} tokens, {dtype}"
    print_table(title, columns, [_cells(row) for row in rows], LEGEND)
    worst = {what: max(row.error for row in rows if row.what == what) for what in PASSES}
    console.print(
        f"whole and sparse differ from ragged by at most {worst[PASSES[0]]:.1e} of the logits' "
        f"root mean square; losses by {worst[PASSES[1]]:.1e}"
    )
    told = [f"{n}: {t['torch']:.2f} / {t['sparse']:.2f} ms" for n, t in torch.items() if t]
    said = "; ".join(told) or "not measured, torch is not installed or cannot run it"
    console.print(
        f"experts of one layer, torch's grouped product / js.grouped_matmul: {said}", markup=False
    )
    return Result(rows, torch, draw(rows, out))


def _cells(row: Row) -> list[str]:
    return [
        f"{row.experts} {'run' if row.what == PASSES[0] else 'train'}",
        *(f"{row.times[form]:.{1 if row.times[form] < 100 else 0}f}" for form in FORMS),
        *(f"{row.gain(form):.2f}x" for form in FORMS[2:4]),
        *(f"{row.memory[form]:.0f}" for form in FORMS[2:]),
        f"{100 * row.dropped:.0f} %",
    ]


def draw(rows: Sequence[Row], out: Path) -> Path:
    """Time and memory over the number of experts."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, len(PASSES))
    for column, what in enumerate(PASSES):
        own = [row for row in rows if row.what == what]
        places = [row.experts for row in own]
        for form in FORMS:
            style = {"marker": "o", "label": form}
            axes[0, column].plot(places, [row.times[form] for row in own], **style)
            axes[1, column].plot(places, [row.memory[form] for row in own], **style)
        axes[0, column].set(title=what, ylabel="ms")
        axes[1, column].set(xlabel="experts", ylabel="MB")
        for plot in axes[:, column]:
            plot.set(xscale="log", yscale="log")
            plot.set_xticks(places, [str(n) for n in places])
            plot.set_xticks([], minor=True)
    axes[0, 0].legend()
    return save(figure, out, "switch_moe.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--full", action="store_true", help="Switch-base, for a GPU")
    command.add_argument("--experts", nargs="+", type=int, help="how many, for each row")
    command.add_argument("--layers", type=int, help="of the encoder and of the decoder")
    command.add_argument("--batch", type=int, help="sequences (default: 4, with --full 8)")
    command.add_argument("--dtype", choices=list(BOUND), help="bfloat16 with --full")
    chosen = command.parse_args(argv)
    config, experts, repeats = (SMALL, (8, 32, 64), 5)
    if chosen.full:
        config, experts, repeats = BASE, (8, 16, 32, 64, 128, 256), 20
    if chosen.quick:
        config, experts, repeats = QUICK, (4,), 1
    if chosen.layers:
        config = config._replace(layers=chosen.layers)
    return run(
        config,
        chosen.experts or experts,
        chosen.out,
        batch=chosen.batch or (8 if chosen.full else 4),
        dtype=chosen.dtype or ("bfloat16" if chosen.full else "float32"),
        repeats=repeats,
    )


if __name__ == "__main__":
    main()
