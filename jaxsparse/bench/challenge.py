"""The sparse DNN challenge, whole: every network, every way of running it, every answer checked.

`python -m jaxsparse.bench.challenge --help`. Networks come from their recipe, inputs from MNIST
where JAXSPARSE_DATA is set and from generated strokes elsewhere. Edges are the challenge's count:
images x 32 x neurons x layers, whatever was skipped.
"""

import dataclasses
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import jaxsparse as js
from jaxsparse.bounded.converged import CENTROIDS, advance, gather_centroids
from jaxsparse.bounded.images import challenge_inputs, strokes
from jaxsparse.bounded.radixnet import BIASES, UPPER, patterns, radixnet_layer

NEURONS, DEPTHS = (1024, 4096, 16384, 65536), (120, 480, 1920)
SUFFIXES = ("", "+recorder", "+proofs")
WAYS = (
    "persistent",
    "unfolded",
    *(dataflow + suffix for dataflow in ("row", "slab", "column") for suffix in SUFFIXES),
    "converged",
)
CHECKED, THRESHOLD = 2000, 30


@dataclasses.dataclass(frozen=True)
class Row:
    """One way of running one network."""

    neurons: int
    depth: int
    way: str
    milliseconds: float
    edges_per_second: float
    alive: int
    correct: bool
    peak_mb: float


@dataclasses.dataclass(frozen=True)
class Saved:
    """Shares of segments that a layer neither reads nor writes (the recorder alone, no proofs)."""

    layer: int
    reads: float
    writes: float


def images_of(count: int) -> tuple[np.ndarray, str]:
    """uint8[count, 28, 28] and where they come from."""
    data = os.environ.get("JAXSPARSE_DATA")
    if data and (file := Path(data, "mnist.npz")).is_file():
        return np.load(file)["train_images"][:count], "MNIST"
    return strokes(count), "strokes"


def reference(x: np.ndarray, weights: Iterator[Any], bias: float) -> np.ndarray:
    """The categories in float64: scipy, layer by layer, decided rows set aside."""
    rows, alive, y = np.arange(len(x)), [], x.astype(np.float64)
    bias = float(np.float32(bias))
    for weight in weights:
        y = np.clip((weight.astype(np.float64) @ y.T).T + bias, 0.0, UPPER)
        full, zero = (y == UPPER).all(1), (y == 0).all(1)
        alive.append(rows[full])
        y, rows = y[~(full | zero)], rows[~(full | zero)]
        if not len(rows):
            break
    return np.sort(np.concatenate([*alive, rows]))


def chain(
    layers: list[js.bounded.Layer], dataflow: str, record: bool, prove: bool
) -> Callable[[Any], Any]:
    """The stack layer by layer in one scan; `prove=False` leaves the recorder alone."""
    if not prove:
        facts = {"zero_stays": False, "saturates_from": float("inf")}
        layers = [dataclasses.replace(layer, **facts) for layer in layers]
    first, rest = jax.tree.map(jnp.asarray, (layers[0], js.bounded.stack(layers[1:])))

    def step(acts: Any, layer: js.bounded.Layer) -> tuple[Any, None]:
        return js.bounded_matmul(acts, layer, dataflow=dataflow, record=record), None

    @jax.jit
    def run(x: jax.Array, first: Any, rest: Any) -> Any:
        return jax.lax.scan(step, step(x, first)[0], rest)[0]

    return lambda x: run(x, first, rest)


def converge(layers: list[js.bounded.Layer]) -> Callable[[Any], Any]:
    """Layer by layer up to the threshold, then centroids and residues, both in scans."""
    first, early = jax.tree.map(jnp.asarray, (layers[0], js.bounded.stack(layers[1:THRESHOLD])))
    late = jax.tree.map(jnp.asarray, js.bounded.stack(layers[THRESHOLD:]))

    @jax.jit
    def run(x: jax.Array, first: Any, early: Any, late: Any) -> Any:
        acts = js.bounded_matmul(x, first, dataflow="column")
        acts, _ = jax.lax.scan(
            lambda a, la: (js.bounded_matmul(a, la, dataflow="column"), None), acts, early
        )
        state = gather_centroids(acts.materialize(), min(CENTROIDS, x.shape[0]), 0.0)
        state, _ = jax.lax.scan(lambda s, la: (advance(s, la), None), state, late)
        y = state.materialize()
        return js.bounded.Activations(y, js.recorder.probe(y, y.shape[1], UPPER))

    return lambda x: run(x, first, early, late)


def timed(run: Callable[[Any], Any], x: jax.Array, samples: int) -> tuple[float, Any]:
    """Best milliseconds of a call after a warm-up, and the result."""
    out = jax.block_until_ready(run(x))
    best = float("inf")
    for _ in range(samples):
        del out
        start = time.perf_counter()
        out = jax.block_until_ready(run(x))
        best = min(best, time.perf_counter() - start)
    return 1e3 * best, out


def peak_mb() -> float:
    """The most memory in use so far: the device's where it says, otherwise the process's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def saved_accesses(layers: list[js.bounded.Layer], x: jax.Array) -> list[Saved]:
    """What the recorder saves, layer by layer."""
    acts, saved, before = js.bounded.Activations.plain(x), [], 0.0
    for i, layer in enumerate(layers):
        acts = js.bounded_matmul(acts, layer)
        share = 1.0 - float(acts.recorder.share(js.recorder.MIXED))
        saved.append(Saved(i, before, share))
        before = share
    return saved


def ways_of(
    neurons: int, depth: int, ways: list[str]
) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """(name, function of the images) of each way that was asked for."""
    weights = list(patterns(neurons, depth))
    for way in ways:
        if way == "persistent":
            net = js.bounded.network(radixnet_layer(w) for w in weights)
        elif way == "unfolded":
            layers = (radixnet_layer(w, fold=False) for w in weights)
            net = js.bounded.network(layers, fold=False)
        else:
            dataflow, _, suffix = way.partition("+")
            layers = [radixnet_layer(w, fold=False) for w in weights]
            if dataflow == "converged":
                yield way, converge(layers)
                continue
            yield way, chain(layers, dataflow, bool(suffix), suffix == "proofs")
            continue
        call = jax.jit(lambda net, x: net(x))
        yield way, lambda x, net=net, call=call: call(net, x)


def run(
    neurons: list[int],
    depths: list[int],
    ways: list[str],
    count: int,
    samples: int,
    console: Console,
) -> tuple[list[Row], dict[str, Any]]:
    """Measure; rows and the facts beside them.

    Raises:
        ValueError: for a width that the challenge does not have, or an unknown way.
    """
    if unknown := [*set(ways) - set(WAYS), *(n for n in neurons if n not in BIASES)]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join([*WAYS, *map(str, BIASES)])}")
    if "converged" in ways and min(depths) <= THRESHOLD:
        raise ValueError(f"depth={min(depths)}: 'converged' takes more than {THRESHOLD} layers")
    images, source = images_of(count)
    rows: list[Row] = []
    facts: dict[str, Any] = {"inputs": source, "images": len(images)}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("challenge", total=len(neurons) * len(depths) * len(ways))
        for n in neurons:
            host = challenge_inputs(images, n)
            x = jnp.asarray(host)
            checked = len(host) if n == 1024 else min(CHECKED, len(host))
            for depth in depths:
                want = reference(host[:checked], patterns(n, depth), BIASES[n])
                for way, call in ways_of(n, depth, ways):
                    progress.update(task, description=f"{n}-{depth} {way}")
                    taken, out = timed(call, x, samples)
                    got = np.flatnonzero(_alive(out))
                    edges = len(host) * 32 * n * depth / (taken / 1e3)
                    correct = np.array_equal(got[got < checked], want)
                    rows.append(Row(n, depth, way, taken, edges, len(got), correct, peak_mb()))
                    if n == 1024 and depth == 120 and source == "MNIST":
                        facts["official"] = official_difference(got, len(host))
                    progress.advance(task)
    return rows, facts


def _alive(out: Any) -> np.ndarray:
    """bool[batch], without filling in what the recorder stands for."""
    codes = out.recorder.codes
    mixed = jnp.any(
        jnp.where(out.recorder.spread(out.values.shape[1]) == 0, out.values, 0) != 0, -1
    )
    return np.asarray(mixed | (codes == js.recorder.UPPER).any(-1))


def official_difference(got: np.ndarray, count: int) -> int | None:
    """How many categories differ from the challenge's list (its resized images are not ours)."""
    file = Path(os.environ["JAXSPARSE_DATA"], "sdgc_n1024_l120_categories.npy")
    if not file.is_file():
        return None
    listed = np.load(file) - 1
    return len(np.setxor1d(got, listed[listed < count]))


def plot_saved(saved: list[Saved], file: Path) -> None:
    """Shares of reads and writes saved over the layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([s.layer for s in saved], [100 * s.reads for s in saved], label="reads")
    axes.plot([s.layer for s in saved], [100 * s.writes for s in saved], label="writes")
    axes.set(xlabel="layer", ylabel="activations' segments saved [%]", ylim=(0, 102))
    axes.legend()
    figure.savefig(file, dpi=150)


def show(rows: list[Row], facts: dict[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table(title=f"sparse DNN challenge, {facts['images']} images ({facts['inputs']})")
    for head in ("network", "way", "ms", "edges/s", "alive", "correct", "peak MB"):
        table.add_column(head, justify="left" if head in ("network", "way") else "right")
    for r in rows:
        table.add_row(
            f"{r.neurons}-{r.depth}",
            r.way,
            f"{r.milliseconds:.3f}",
            f"{r.edges_per_second:.3g}",
            str(r.alive),
            "yes" if r.correct else "NO",
            f"{r.peak_mb:.0f}",
        )
    console.print(table)
    if facts.get("official") is not None:
        console.print(f"1024-120: {facts['official']} categories differ from the official list")


def main(
    neurons: Annotated[
        list[int] | None, typer.Option(help="Default: all four. Repeatable.")
    ] = None,
    depth: Annotated[list[int] | None, typer.Option(help="Default: all three. Repeatable.")] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(
            help="persistent, unfolded, converged, row|slab|column alone, +recorder or +proofs."
        ),
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="Images, at most 60,000.")] = 60000,
    samples: Annotated[int, typer.Option(min=1)] = 5,
    quick: Annotated[bool, typer.Option(help="1024-120 alone, 5,000 images.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Accesses saved, drawn.")] = None,
) -> None:
    """Run the sparse DNN challenge. Exit status 1 when a category is wrong."""
    console = Console()
    ways = way or list(WAYS)
    if quick:
        neurons, depth, images = neurons or [1024], depth or [120], min(images, 5000)
    widths, depths = neurons or list(NEURONS), depth or list(DEPTHS)
    try:
        rows, facts = run(widths, depths, ways, images, samples, console)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    show(rows, facts, console)
    if plot_file is not None or json_file is not None:
        x = challenge_inputs(images_of(min(images, CHECKED))[0], widths[0])
        layers = [radixnet_layer(w) for w in patterns(widths[0], min(depths[0], 60))]
        saved = saved_accesses(layers, jnp.asarray(x))
        facts["saved"] = [dataclasses.asdict(s) for s in saved]
        if plot_file is not None:
            plot_saved(saved, plot_file)
    if json_file is not None:
        facts["rows"] = [dataclasses.asdict(r) for r in rows]
        json_file.write_text(json.dumps(facts, indent=1) + "\n")
    if not all(r.correct for r in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
