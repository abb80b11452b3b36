"""What the demos share: options, timing, tables, pictures."""

import argparse
import contextlib
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import jaxsparse as js
from jaxsparse.bench.measure.turns import from_environment

console = Console(highlight=False)
console.width = max(console.width, 96)
FORMS = ("dense", "multiplied", "sparse")
FORM_TITLES = ("dense,\nXLA [ms]", "multiplied\nby mask\n[ms]", "jaxsparse\n[ms]", "speed-up")


def parser(description: str) -> argparse.ArgumentParser:
    """The command line of a demo: `--quick` and `--out`, to add to."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help="small sizes and few steps")
    where = "the folder of the pictures, made where it is missing (default: ./out)"
    made.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help=where)
    return made


def options(description: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a demo without options of its own."""
    return parser(description).parse_args(argv)


def progress() -> Progress:
    """A progress bar, for what takes longer than two seconds."""
    bar = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*bar, console=console, transient=True)


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """A moving bar, for what takes longer than two seconds and has no steps to count."""
    bar = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*bar, console=console, transient=True) as shown:
        shown.add_task(text, total=None)
        yield


def time_together(
    calls: Mapping[str, Callable[[], Any]],
    repeats: int,
    tick: Callable[[], None] | None = None,
    in_a_row: int = 1,
    pause: float = 0.0,
    of: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Milliseconds of each call: warmed up, in turns, each result waited for. Demos that share a
    device can measure one after the other (docs/measuring.md).

    Args:
        calls: by name.
        repeats: turns of each.
        tick: called after every turn.
        in_a_row: calls of a turn, of which the mean is taken.
        pause: seconds before a turn, in which the threads of the call before it stop waiting for
            more work: some spin for milliseconds, and would take a core from this one.
        of: what of the turns is returned.
    """
    for call in calls.values():
        jax.block_until_ready(call())
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with from_environment()():
        for _ in range(repeats):
            for name, call in calls.items():
                time.sleep(pause)
                start = time.perf_counter()
                for _ in range(in_a_row):
                    jax.block_until_ready(call())
                taken[name].append(1e3 * (time.perf_counter() - start) / in_a_row)
            if tick:
                tick()
    return {name: of(times) for name, times in taken.items()}


def carried(function: Callable[..., Any], state: Any, *args: Any) -> Callable[[], Any]:
    """A call that hands its own result on as the next call's (donated) state."""
    held = [state]

    def call() -> Any:
        held[0] = function(held[0], *args)
        return held[0]

    return call


def peak_of(compiled: Any) -> int:
    """Bytes that a compiled call needs at once: what it is given, what it makes, and what lies
    between.
    """
    found = compiled.memory_analysis()
    whole = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return int(whole - found.alias_size_in_bytes)


def package_file(package: str, path: str, project: str, extra: str) -> Path:
    """A file of an installed package, found without importing the package.

    Raises:
        ImportError: the package is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ImportError(f"{project} is not installed: pip install jaxsparse[{extra}]")
    return Path(found.origin).parent / path


def times_row(times: Mapping[str, float]) -> list[str]:
    """Cells of the three forms and the speed-up of ours over dense."""
    cells = [f"{times[form]:.2f}" for form in FORMS]
    return [*cells, f"{times['dense'] / times['sparse']:.2f}x"]


def rest_row(
    whole: Mapping[str, float], parts: Sequence[tuple[int, Mapping[str, float]]]
) -> list[str]:
    """Cells of what the whole takes beyond its parts, each timed alone and there so many times."""
    sums = {form: sum(count * times[form] for count, times in parts) for form in FORMS}
    return [*(f"{whole[form] - sums[form]:.2f}" for form in FORMS), ""]


def machine() -> str:
    """What the figures were measured on: the device, its host's threads, and the versions."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or platform.machine()
    device = jax.devices()[0]
    gpu = "" if device.platform == "cpu" else f"{device.device_kind}; host "
    threads = len(os.sched_getaffinity(0))
    return f"{gpu}{cpu}, {threads} threads, jax {jax.__version__}, jaxsparse {js.__version__}"


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    legend: str = "",
    total: bool = True,
) -> None:
    """One table; with `total` the last row is the whole network's. The legend and the machine stand
    below.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=total and i == len(rows) - 2)
    console.print(table)
    if legend:
        console.print(f"{legend}\nMeasured on {machine()}.", style="dim", markup=False)


def overlay(image: np.ndarray, mask: np.ndarray, strength: float = 0.5) -> np.ndarray:
    """`image` f32[H,W,3] with the pixels of `mask` bool[h,w] (stretched over it) coloured."""
    rows, cols = (n // m for n, m in zip(image.shape[:2], mask.shape, strict=True))
    wide = np.kron(mask, np.ones((rows, cols), bool))[..., None]
    colour = np.array([1.0, 0.35, 0.1], np.float32)
    return np.where(wide, (1 - strength) * image + strength * colour, image)


def outline_tiles(axes: Any, tiles: np.ndarray, tile: tuple[int, int], scale: int) -> None:
    """Outline the tiles bool[rows, cols] on `axes`, a tile's pixel being `scale` pixels wide."""
    height, width = tile[0] * scale, tile[1] * scale
    boxes = [
        Rectangle((j * width - 0.5, i * height - 0.5), width, height) for i, j in np.argwhere(tiles)
    ]
    axes.add_collection(
        PatchCollection(boxes, facecolor="none", edgecolor="#1060d0", linewidth=0.7)
    )


def grid_figure(rows: int, cols: int, width: float, height: float) -> tuple[Figure, Any]:
    """A figure and its axes [rows, cols], without ticks."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, cols, squeeze=False)
    for each in axes.flat:
        each.set(xticks=[], yticks=[])
    return figure, axes


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write the picture; says where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with working(f"drawing {name}"):
        figure.savefig(path, dpi=110)
    console.print(f"picture: {path}", markup=False, soft_wrap=True)
    return path
