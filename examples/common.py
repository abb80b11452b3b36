"""What the demos share: options, timing, tables, pictures."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
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

console = Console(highlight=False)
console.width = max(console.width, 96)
FORMS = ("dense", "multiplied", "sparse")
FORM_TITLES = ("dense,\nXLA [ms]", "multiplied\nby mask", "jaxsparse\n[ms]", "speed-up")


def options(description: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a demo: `--quick` and `--out`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes and few steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", metavar="DIR")
    return parser.parse_args(argv)


def progress() -> Progress:
    """A progress bar, for what takes longer than two seconds."""
    bar = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*bar, console=console, transient=True)


def time_together(
    calls: Mapping[str, Callable[[], Any]], repeats: int, tick: Callable[[], None] | None = None
) -> dict[str, float]:
    """Median milliseconds of each call: warmed up, in turns, each result waited for."""
    for call in calls.values():
        jax.block_until_ready(call())
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            taken[name].append(1e3 * (time.perf_counter() - start))
        if tick:
            tick()
    return {name: statistics.median(times) for name, times in taken.items()}


def carried(function: Callable[..., Any], state: Any, *args: Any) -> Callable[[], Any]:
    """A call that hands its own result on as the next call's (donated) state."""
    held = [state]

    def call() -> Any:
        held[0] = function(held[0], *args)
        return held[0]

    return call


def times_row(times: Mapping[str, float]) -> list[str]:
    """Cells of the three forms and the speed-up of ours over dense."""
    cells = [f"{times[form]:.2f}" for form in FORMS]
    return [*cells, f"{times['dense'] / times['sparse']:.2f}x"]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table; the last row is the whole network's."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=i == len(rows) - 2)
    console.print(table)


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
    figure.savefig(path, dpi=110)
    console.print(f"picture: {path}")
    return path
