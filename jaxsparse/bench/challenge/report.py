"""What the challenge's run found, and its files."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from jaxsparse.bench.challenge.ways import Overhead
from jaxsparse.bench.report.provenance import Provenance, device

HEADS = ("network", "way", "ms", "edges/s", "alive", "correct", "memory MB")
LEGEND = (
    "Best wall time of a call, weights and images on the device; calls of less than 25 ms ten in a "
    "row. Edges: images x 32 x neurons x layers, whatever was skipped. Alive: images whose last "
    "row is not all zero; correct: they are the reference's in float64. Memory: arguments, results "
    "and workspace of the call."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One way of running one network; `note` instead of figures where it was left out."""

    neurons: int
    depth: int
    way: str
    milliseconds: float | None = None
    edges_per_second: float | None = None
    alive: int | None = None
    correct: bool | None = None
    memory_mb: float | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """As text, under `HEADS`."""
        name = f"{self.neurons}-{self.depth}"
        if self.milliseconds is None:
            return (name, self.way, self.note, "", "", "", "")
        return (
            name,
            self.way,
            f"{self.milliseconds:.3f}",
            f"{self.edges_per_second:.3g}",
            str(self.alive),
            "yes" if self.correct else "NO",
            f"{self.memory_mb:.0f}",
        )


@dataclasses.dataclass(frozen=True)
class Saved:
    """Shares of segments that a layer neither reads nor writes (the recorder alone, no proofs)."""

    neurons: int
    layer: int
    reads: float
    writes: float


@dataclasses.dataclass(frozen=True)
class Found:
    """A whole run."""

    inputs: str
    images: int
    rows: list[Row]
    official: int | None = None
    saved: list[Saved] = dataclasses.field(default_factory=list)
    overheads: list[Overhead] = dataclasses.field(default_factory=list)

    @property
    def correct(self) -> bool:
        """Whether every category of every call was right."""
        return all(row.correct is not False for row in self.rows)

    def remarks(self) -> list[str]:
        """What stands under the table."""
        lines = []
        if self.official is not None:
            lines.append(
                f"1024-120: {self.official} categories differ from the official list (its resized "
                "images are not ours)."
            )
        for o in self.overheads:
            lines.append(
                f"Recorder where nothing saturates, {o.images} x {o.neurons}, {o.dataflow}: "
                f"{o.milliseconds:.3f} -> {o.recorded:.3f} ms ({100 * o.share:+.1f} %)."
            )
        return lines


def show(found: Found, console: Console) -> None:
    """Print the table."""
    table = Table(title=f"sparse DNN challenge, {found.images} images ({found.inputs})")
    for head in HEADS:
        left = head in HEADS[:2]
        table.add_column(head, justify="left" if left else "right", no_wrap=left)
    for row in found.rows:
        table.add_row(*row.cells())
    console.print(table)
    console.print(LEGEND, markup=False)
    console.print(f"Measured on {device()}.", markup=False)
    for line in found.remarks():
        console.print(line)


def to_json(found: Found, source: Provenance) -> str:
    """Everything, with where it comes from."""
    facts: dict[str, Any] = {"provenance": msgspec.to_builtins(source)}
    return json.dumps({**facts, **dataclasses.asdict(found)}, indent=1) + "\n"


def to_csv(found: Found) -> str:
    """The rows."""
    text = io.StringIO()
    fields = [field.name for field in dataclasses.fields(Row)]
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in found.rows)
    return text.getvalue()


def to_markdown(found: Found, source: Provenance) -> str:
    """The table as a page of benchmarks/results."""
    lines = ["# Sparse DNN challenge", "", *(f"- {line}" for line in source.lines())]
    lines += [f"- Inputs: {found.images} images ({found.inputs})", "", LEGEND, ""]
    lines += [f"| {' | '.join(HEADS)} |", "|---|---|" + "---:|" * (len(HEADS) - 2)]
    lines += [f"| {' | '.join(row.cells())} |" for row in found.rows]
    lines += ["", *found.remarks(), "", *saved_table(found.saved)]
    return "\n".join(lines).rstrip() + "\n"


def saved_table(saved: list[Saved]) -> list[str]:
    """Reads / writes saved, percent, a line a layer and a column a width."""
    if not saved:
        return []
    shares = {(s.neurons, s.layer): f"{100 * s.reads:.1f} / {100 * s.writes:.1f}" for s in saved}
    widths = sorted({s.neurons for s in saved})
    lines = ["## Reads / writes that the recorder alone saves, % of the activations' segments", ""]
    lines += [f"| layer | {' | '.join(map(str, widths))} |", "|---:|" + "---:|" * len(widths)]
    for layer in sorted({s.layer for s in saved}):
        cells = (shares.get((n, layer), "") for n in widths)
        lines.append(f"| {layer} | {' | '.join(cells)} |")
    return lines


def _read(file: Path) -> dict[str, Any]:
    """What `to_json` wrote.

    Raises:
        ValueError: for any other file, naming it.
    """
    try:
        run = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(run, dict) or not {"provenance", "rows", "saved", "overheads"} <= {*run}:
        raise ValueError(f"{file} holds no run that --json wrote")
    return run


def join(files: list[Path]) -> tuple[Found, Provenance]:
    """The runs of several JSON files as one; later rows of the same network and way replace
    earlier ones.

    Raises:
        ValueError: for a file that holds no run, runs of other inputs, or of another device.
    """
    kept: dict[tuple[int, int, str], Row] = {}
    saved: dict[tuple[int, int], Saved] = {}
    official, overheads, sources, inputs = None, [], [], set()
    for file in files:
        run = _read(file)
        sources.append(msgspec.convert(run["provenance"], Provenance))
        inputs.add((run["inputs"], run["images"], sources[-1].device))
        kept |= {(r["neurons"], r["depth"], r["way"]): Row(**r) for r in run["rows"]}
        saved |= {(s["neurons"], s["layer"]): Saved(**s) for s in run["saved"]}
        overheads += [Overhead(**o) for o in run["overheads"]]
        official = official if run["official"] is None else run["official"]
    if len(inputs) != 1:
        raise ValueError(f"the runs differ in inputs or device: {sorted(inputs)}")
    name, images, _ = inputs.pop()
    rows = sorted(kept.values(), key=lambda r: (r.neurons, r.depth))
    source = msgspec.structs.replace(sources[-1], command="; ".join(s.command for s in sources))
    return Found(name, images, rows, official, list(saved.values()), overheads), source


def plot_saved(saved: list[Saved], file: Path) -> None:
    """Shares of reads and writes saved over the layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for k, n in enumerate(sorted({s.neurons for s in saved})):
        mine = [s for s in saved if s.neurons == n]
        layers = [s.layer for s in mine]
        axes.plot(layers, [100 * s.reads for s in mine], f"C{k}--", label=f"{n}: reads")
        axes.plot(layers, [100 * s.writes for s in mine], f"C{k}", label=f"{n}: writes")
    axes.set(xlabel="layer", ylabel="activations' segments saved [%]", ylim=(0, 102))
    axes.legend()
    figure.savefig(file, dpi=150)
