"""An exhibit: a table or figure of a paper, what it reports, and how it is measured on this machine
or the reason that it is not.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

import msgspec

from jaxsparse.bench.products.rows import ProductRow
from jaxsparse.bench.products.run import Comparison, ProductPlan, measure
from jaxsparse.bench.report.report import BaseReport

HEADS = ("case", "the paper", "here")
SMALL = "These are a few small cases (--small); --full measures the paper's sizes."


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much is measured, and how.

    Attributes:
        full: whether every case is measured at the paper's size, or a few small ones.
        gpu: whether the device is a GPU.
        plan: timed rounds, calls of a chain, distinct inputs.
        on_step: called with the name of what is measured next.
    """

    full: bool
    gpu: bool
    plan: ProductPlan
    on_step: Callable[[str], None]

    @property
    def dtype(self) -> str:
        """Products in float32 as in the papers: "highest" on a GPU, "float32" on a CPU."""
        return "highest" if self.gpu else "float32"


class Figure(msgspec.Struct, frozen=True):
    """One measured line of an exhibit: the case, the paper's number (empty where the paper draws it
    without numbers), and this machine's.
    """

    case: str
    paper: str
    here: str
    correct: bool = True


@dataclasses.dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper.

    Attributes:
        label: its name in the paper.
        title: what it shows.
        theirs: the paper's hardware, and what its factors are relative to.
        ours: what the factors of this machine are relative to.
        figures: measures the lines; None where the exhibit cannot be reproduced.
        missing: the reason, where `figures` is None.
        published: files of benchmarks/results that hold what was measured elsewhere, by their
            paths in that folder.
    """

    label: str
    title: str
    theirs: str
    ours: str = ""
    figures: Callable[[Setting], Iterator[Figure]] | None = None
    missing: str = ""
    published: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.figures is None) != bool(self.missing):
            raise ValueError(f"{self.label}: figures or a reason for their absence, not both")


def drawings(label: str, what: str = "how the method works") -> Exhibit:
    """Tables and figures that explain and report no measurement."""
    return Exhibit(label, what, "", missing="they hold no measurement.")


def trained(label: str, title: str, data: str, more: str = "") -> Exhibit:
    """An exhibit of networks trained on data that is not available; `more`: what comes closest."""
    why = f"it needs networks that are trained on {data}; they and the data are not available."
    return Exhibit(label, title, data, missing=f"{why} {more}".rstrip())


class Line(msgspec.Struct, frozen=True):
    """A line of the report: a `Figure` with its exhibit, or why the exhibit is missing."""

    op: str
    exhibit: str
    title: str
    conditions: str
    case: str
    paper: str
    here: str
    correct: bool
    missing: str
    published: tuple[str, ...] = ()


class PaperReport(BaseReport[Line], frozen=True):
    """All exhibits of a paper, measured or not; `whole`: at the paper's sizes."""

    whole: bool = True

    def title(self) -> str:
        """The heading of the file."""
        return f"The tables and figures of {self.rows[0].op}" if self.rows else "nothing"

    def exhibits(self) -> dict[str, list[Line]]:
        """Label -> its lines, in the paper's order."""
        found: dict[str, list[Line]] = {}
        for line in self.rows:
            found.setdefault(line.exhibit, []).append(line)
        return found

    def legend(self) -> str:
        """What the columns mean."""
        return (
            "Each exhibit says what the factors of the paper and of this machine are relative to. "
            "The machines differ, so compare factors, not times. An empty cell means that the "
            "paper has a drawing without numbers." + ("" if self.whole else " " + SMALL)
        )

    def tables(self) -> Iterator[str]:
        """A table for each exhibit; a sentence for one that is missing."""
        for label, lines in self.exhibits().items():
            yield from ("", f"## {label}: {lines[0].title}", "")
            elsewhere = ", ".join(_link(path) for path in lines[0].published)
            if lines[0].missing:
                yield f"Not measured here: {lines[0].missing}"
                yield from ("", f"Published: {elsewhere}.") if elsewhere else ()
                continue
            yield from (lines[0].conditions, "")
            yield from (f"Published: {elsewhere}.", "") if elsewhere else ()
            yield from (f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|")
            yield from (f"| {line.case} | {line.paper} | {line.here} |" for line in lines)


def _link(path: str) -> str:
    """A link to a file of benchmarks/results from a report in its folder."""
    return f"[{PurePosixPath(path).stem}](../{path})"


def lines_of(paper: str, exhibit: Exhibit, setting: Setting) -> Iterator[Line]:
    """The lines of one exhibit, measured now."""
    conditions = f"The paper: {exhibit.theirs}. Here: {exhibit.ours}."
    make = functools.partial(Line, paper, exhibit.label, exhibit.title, conditions)
    if exhibit.figures is None:
        yield make("", "", "", True, exhibit.missing, exhibit.published)
        return
    for figure in exhibit.figures(setting):
        yield make(figure.case, figure.paper, figure.here, figure.correct, "", exhibit.published)


def speedups(
    comparisons: Iterable[Comparison],
    setting: Setting,
    reported: Callable[[Comparison], str] = lambda comparison: "",
    ours: str = "jaxsparse",
    memory: bool = False,
    flops: Callable[[Comparison], float] | None = None,
) -> Iterator[Figure]:
    """One `Figure` for each comparison: how many times faster `ours` is than each other side.

    Args:
        comparisons: what to measure.
        setting: how.
        reported: the paper's number.
        ours: the side whose time is given.
        memory: also the temporaries of a call of each side, where XLA knows them.
        flops: the operations of a call, where the rate is wanted.
    """
    for one in comparisons:
        setting.on_step(f"{one.case} {one.what}")
        rows = {row.side: row for row in measure(one, setting.plan, lambda side: None)}
        case, mine = f"{one.case}, {one.what}", rows[ours]
        time = time_of(mine)
        if not mine.correct or time is None:
            yield Figure(case, reported(one), f"wrong: {mine.note or mine.error}", correct=False)
            continue
        others = [_times(row, time) for side, row in rows.items() if side != ours]
        text = f"{time:,.1f} us"
        if flops is not None:
            text += f" ({1e-3 * flops(one) / time:,.1f} GFLOP/s)"
        text += f": {', '.join(others)}"
        if memory:
            sizes = {side: row.temporary_mb for side, row in rows.items() if row.correct}
            known = [f"{side} {size:,.1f} MB" for side, size in sizes.items() if size is not None]
            text += f"; temporaries: {', '.join(known)}" if known else ""
        yield Figure(case, reported(one), text)


def time_of(row: ProductRow) -> float | None:
    """Microseconds of a call: on the device where that was measured."""
    return row.wall_us if row.device_us is None else row.device_us


def _times(row: ProductRow, time: float) -> str:
    """How many times a row's time is of `time`."""
    theirs = time_of(row)
    if row.correct and theirs is not None and math.isfinite(theirs):
        return f"{theirs / time:.2f}x {row.side}"
    return f"{row.side} failed"
