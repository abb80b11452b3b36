"""An exhibit: a table or figure of a paper, what it reports, and how it is measured on this machine
or the reason that it is not.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator

import msgspec

from jaxsparse.bench.products.run import Comparison, ProductPlan, measure
from jaxsparse.bench.report.report import BaseReport

HEADS = ("case", "the paper", "here")


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
    """

    label: str
    title: str
    theirs: str
    ours: str = ""
    figures: Callable[[Setting], Iterator[Figure]] | None = None
    missing: str = ""

    def __post_init__(self) -> None:
        if (self.figures is None) != bool(self.missing):
            raise ValueError(f"{self.label}: figures or a reason for their absence, not both")


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


class PaperReport(BaseReport[Line], frozen=True):
    """All exhibits of a paper, measured or not."""

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
            "paper has a drawing without numbers."
        )

    def tables(self) -> Iterator[str]:
        """A table for each exhibit; a sentence for one that is missing."""
        for label, lines in self.exhibits().items():
            yield from ("", f"## {label}: {lines[0].title}", "")
            if lines[0].missing:
                yield f"Not reproduced: {lines[0].missing}"
                continue
            yield from (lines[0].conditions, "")
            yield from (f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|")
            yield from (f"| {line.case} | {line.paper} | {line.here} |" for line in lines)


def lines_of(paper: str, exhibit: Exhibit, setting: Setting) -> Iterator[Line]:
    """The lines of one exhibit, measured now."""
    conditions = f"The paper: {exhibit.theirs}. Here: {exhibit.ours}."
    make = functools.partial(Line, paper, exhibit.label, exhibit.title, conditions)
    if exhibit.figures is None:
        yield make("", "", "", True, exhibit.missing)
        return
    for figure in exhibit.figures(setting):
        yield make(figure.case, figure.paper, figure.here, figure.correct, "")


def speedups(
    comparisons: Iterable[Comparison],
    setting: Setting,
    reported: Callable[[Comparison], str] = lambda comparison: "",
    ours: str = "jaxsparse",
) -> Iterator[Figure]:
    """One `Figure` for each comparison: how many times faster `ours` is than each other side."""
    for one in comparisons:
        setting.on_step(f"{one.case} {one.what}")
        rows = {row.side: row for row in measure(one, setting.plan, lambda side: None)}
        case, mine = f"{one.case}, {one.what}", rows.pop(ours)
        time = mine.wall_us if mine.device_us is None else mine.device_us
        if not mine.correct or time is None:
            yield Figure(case, reported(one), f"wrong: {mine.note or mine.error}", correct=False)
            continue
        others = []
        for row in rows.values():
            theirs = row.wall_us if row.device_us is None else row.device_us
            if row.correct and theirs is not None and math.isfinite(theirs):
                others.append(f"{theirs / time:.2f}x {row.side}")
            else:
                others.append(f"{row.side} failed")
        yield Figure(case, reported(one), f"{time:,.1f} us: {', '.join(others)}")
