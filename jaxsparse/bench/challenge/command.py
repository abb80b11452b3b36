"""The sparse DNN challenge, whole: every network, every way of running it, every answer checked.

`python -m jaxsparse.bench.challenge --help`. Networks come from their recipe, inputs from MNIST
where JAXSPARSE_DATA is set and from generated strokes elsewhere.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from jaxsparse import bounded, recorder
from jaxsparse.bench.challenge.report import (
    Found,
    Row,
    Saved,
    join,
    plot_saved,
    show,
    to_csv,
    to_json,
    to_markdown,
)
from jaxsparse.bench.challenge.ways import THRESHOLD, WAYS, Networks, overheads, reference
from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.report.report import make_folders
from jaxsparse.bounded.images import challenge_inputs, strokes
from jaxsparse.bounded.radixnet import BIASES, patterns
from jaxsparse.ops import bounded_matmul

NEURONS, DEPTHS = (1024, 4096, 16384, 65536), (120, 480, 1920)
CHECKED, PARTS = 2000, 16
SHORT, ROW = 0.025, 10  # seconds of a short call; so many of them are timed in a row
DRAWN = 32  # layers of the plot: behind them the challenge's rows are decided


def images_of(count: int) -> tuple[np.ndarray, str]:
    """uint8[count, 28, 28] and where they come from."""
    data = os.environ.get("JAXSPARSE_DATA")
    if data and (file := Path(data, "mnist.npz")).is_file():
        return np.load(file)["train_images"][:count], "MNIST"
    return strokes(count), "strokes"


def on_device(host: np.ndarray) -> jax.Array:
    """bool[count, neurons] as float32 on the device, a part at a time."""
    parts = [jnp.asarray(part) for part in np.array_split(host, PARTS) if len(part)]
    whole = jax.jit(lambda parts: jnp.concatenate([p.astype(jnp.float32) for p in parts]))
    return jax.block_until_ready(whole(parts))


def best_of(call: Callable[[], Any], samples: int) -> float:
    """Best milliseconds of a call that ran before: short ones ten in a row, one of more than a
    second once."""
    best, many, out = float("inf"), 1, None
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(many):
            out = call()
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - start) / many)
        if best > 1:
            break
        many = ROW if best < SHORT else 1
    return 1e3 * best


def warm_best(call: Callable[[], Any], samples: int) -> float:
    """`best_of` after a first call."""
    jax.block_until_ready(call())
    return best_of(call, samples)


@jax.jit
def alive(out: Any) -> jax.Array:
    """bool[images]: whose row is not all zero."""
    codes = out.recorder.codes
    stored = jnp.where(out.recorder.spread(out.values.shape[1]) == recorder.MIXED, out.values, 0)
    return jnp.any(stored != 0, -1) | (codes == recorder.UPPER).any(-1)


class Runner:
    """One width's measurements."""

    def __init__(
        self, neurons: int, deepest: int, images: np.ndarray, samples: int, rates: dict[str, float]
    ):
        self.neurons, self.samples = neurons, samples
        host = challenge_inputs(images, neurons, np.bool_)
        checked = len(host) if neurons == 1024 else min(CHECKED, len(host))
        self.first = host[:checked].astype(np.float32)
        self.x = on_device(host)
        self.networks = Networks(neurons, deepest)
        self.rates = rates  # milliseconds a neuron and layer of each way, so far
        self.want: np.ndarray | None = None
        self.settled = False

    def expected(self, depth: int) -> np.ndarray:
        """The reference's categories; once every row is decided they hold for deeper networks."""
        if self.want is None or not self.settled:
            weights = patterns(self.neurons, depth)
            self.want, self.settled = reference(self.first, weights, BIASES[self.neurons])
        return self.want

    def left_out(self, way: str, depth: int, limit: float, largest: float) -> str:
        """Why a way is not run, or nothing."""
        if way == "persistent" or (way == "unfolded" and neurons_fit(self.x, depth)):
            return ""
        if way.startswith("converged") and depth <= THRESHOLD:
            return f"> {THRESHOLD} layers only"
        if self.neurons * depth > 1e6 * largest:
            return "past --largest"
        guess = self.rates.get(way, 0.0) * self.neurons * depth
        return f"{guess / 1e3:.0f} s a call" if guess > 1e3 * limit else ""

    def measure(self, way: str, depth: int) -> tuple[Row, np.ndarray]:
        """Build, run, check and time one way; the categories with the row."""
        function, given = self.networks.call(way, depth)
        compiled = jax.jit(function).lower(given, self.x).compile()
        got = np.flatnonzero(np.asarray(alive(compiled(given, self.x))))
        milliseconds = best_of(lambda: compiled(given, self.x), self.samples)
        self.rates[way] = milliseconds / (self.neurons * depth)
        edges = len(self.x) * 32 * self.neurons * depth / (milliseconds / 1e3)
        want = self.expected(depth)
        correct = np.array_equal(got[got < len(self.first)], want)
        memory = megabytes(compiled)
        return Row(self.neurons, depth, way, milliseconds, edges, len(got), correct, memory), got


def neurons_fit(x: jax.Array, depth: int) -> bool:
    """Whether an unfolded network's weights fit the device, with the images x [images, neurons],
    two results and two states of their size."""
    stats = jax.devices()[0].memory_stats() or {}
    room = stats.get("bytes_limit", 0)
    return 4 * 33 * x.shape[1] * depth + 5 * x.nbytes < room


def megabytes(compiled: Any) -> float:
    """Arguments, results and workspace of a compiled call."""
    use = compiled.memory_analysis()
    parts = (use.argument_size_in_bytes, use.output_size_in_bytes, use.temp_size_in_bytes)
    return sum(parts) / 2**20


def run(
    neurons: list[int],
    depths: list[int],
    ways: list[str],
    count: int,
    samples: int,
    limit: float,
    largest: float,
) -> Found:
    """Measure.

    Raises:
        ValueError: for a width that the challenge does not have, or an unknown way.
    """
    for name, given, takes in (("way", ways, WAYS), ("neurons", neurons, tuple(BIASES))):
        if unknown := [value for value in given if value not in takes]:
            raise ValueError(f"{name} {unknown[0]} is not one of {', '.join(map(str, takes))}")
    images, source = images_of(count)
    rows: list[Row] = []
    rates: dict[str, float] = {}
    official = None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("challenge", total=len(neurons) * len(depths) * len(ways))
        for n in neurons:
            progress.update(task, description=f"{n}: images")
            runner = Runner(n, max(depths), images, samples, rates)
            for depth in sorted(depths):
                for way in ways:
                    progress.update(task, description=f"{n}-{depth} {way}")
                    if why := runner.left_out(way, depth, limit, largest):
                        rows.append(Row(n, depth, way, note=why))
                    else:
                        row, got = runner.measure(way, depth)
                        rows.append(row)
                        if (n, depth, source) == (1024, 120, "MNIST"):
                            official = official_difference(got, len(images))
                    progress.advance(task)
            del runner
    return Found(source, len(images), rows, official)


def official_difference(got: np.ndarray, count: int) -> int | None:
    """How many categories differ from the challenge's list (its resized images are not ours)."""
    file = Path(os.environ["JAXSPARSE_DATA"], "sdgc_n1024_l120_categories.npy")
    if not file.is_file():
        return None
    listed = np.load(file) - 1
    return len(np.setxor1d(got, listed[listed < count]))


def saved_accesses(neurons: int, depth: int, images: np.ndarray) -> list[Saved]:
    """What the recorder saves, layer by layer."""
    acts: Any = jnp.asarray(challenge_inputs(images, neurons))
    saved, before = [], 0.0
    for i, layer in enumerate(bounded.radixnet(neurons, depth)):
        acts = bounded_matmul(acts, layer)
        share = 1.0 - float(acts.recorder.share(recorder.MIXED))
        saved.append(Saved(neurons, i, before, share))
        before = share
    return saved


def main(
    neurons: Annotated[
        list[int] | None,
        typer.Option(help="1024, 4096, 16384 or 65536; default: all four. Repeatable."),
    ] = None,
    depth: Annotated[
        list[int] | None,
        typer.Option(
            "--depth", "--layers", min=1, help="Layers; default: 120, 480 and 1920. Repeatable."
        ),
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(
            help="persistent (one call, folded), unfolded (one call, every output), or layer by "
            "layer row, slab, column, converged, each alone, with +recorder or with +proofs; "
            "default: all. Repeatable."
        ),
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=60000, help="Images.")] = 60000,
    samples: Annotated[int, typer.Option(min=1, help="Timed rounds, the best counts.")] = 5,
    limit: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds: calls that would take longer, by their rate, are left out."
        ),
    ] = 4.0,
    largest: Annotated[
        float,
        typer.Option(min=0, help="Layer by layer: at most so many million neurons x layers."),
    ] = 8.0,
    overhead: Annotated[
        bool,
        typer.Option("--overhead", help="What recorders cost where nothing saturates, too."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="1024-120 alone, 5,000 images.")] = False,
    pieces: Annotated[
        list[Path] | None,
        typer.Option("--join", help="Measure nothing: join these JSON files. Repeatable."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the rows.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write a table.")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw the accesses saved, layer by layer.")
    ] = None,
) -> None:
    """Run the sparse DNN challenge, every answer checked.

    Networks come from their recipe; images are MNIST's where the environment variable
    JAXSPARSE_DATA names a folder that holds mnist.npz, else generated strokes. Exit status 1 when
    a category is wrong.
    """
    console = Console()
    ways = way or list(WAYS)
    if quick:
        neurons, depth, images = neurons or [1024], depth or [120], min(images, 5000)
    widths, depths = neurons or list(NEURONS), depth or list(DEPTHS)
    try:
        make_folders(json_file, csv_file, markdown_file, plot_file)
        if pieces:
            found, source = join(pieces)
        else:
            found = run(widths, depths, ways, images, samples, limit, largest)
            source = provenance(command_line())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if overhead and not pieces:
        found.overheads.extend(overheads(widths[0], images, lambda call: warm_best(call, samples)))
    show(found, console)
    if not pieces and (plot_file is not None or json_file is not None):
        part, _ = images_of(min(images, CHECKED))
        for n in widths:
            found.saved.extend(saved_accesses(n, min(*depths, DRAWN), part))
    if plot_file is not None:
        plot_saved(found.saved, plot_file)
    for file, text in (
        (json_file, to_json(found, source)),
        (csv_file, to_csv(found)),
        (markdown_file, to_markdown(found, source)),
    ):
        if file is not None:
            file.write_text(text)
    if not found.correct:
        raise typer.Exit(1)
