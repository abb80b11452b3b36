"""What the benchmarks of matrix products found: rows, tables and files."""

import itertools
from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.table import Table

from jaxsparse.bench.report.report import BaseReport

LEGEND = (
    "Microseconds a call: wall time, ± half the distance of its quartiles, on a GPU device time. "
    "How many times faster than the side without a factor (device time where it was measured). "
    "Memory: "
    "temporaries of one compiled call, XLA's own analysis."
)
HEADS = ("side", "wall us", "device us", "faster", "temporary MB")


class ProductRow(msgspec.Struct, frozen=True):
    """One side of one comparison. Times are medians per call, in microseconds.

    `what` says which product or pass, `speedup` and `device_speedup` are over the side `against` in
    the same run; what was not measured is None.
    """

    op: str
    case: str
    what: str
    dtype: str
    side: str
    against: str
    calls: int
    rotated_mb: float
    wall_us: float | None
    wall_low_us: float | None
    wall_high_us: float | None
    device_us: float | None
    speedup: float | None
    device_speedup: float | None
    temporary_mb: float | None
    error: float | None
    tolerance: float
    correct: bool
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """As HEADS; what went wrong in the place of the times."""
        if not self.correct:
            wrong = "failed" if self.note else f"wrong ({self.error or float('inf'):.1e})"
            return self.side, wrong, "", "", ""
        assert self.wall_us is not None, "a correct row was timed"
        spread = 50 * ((self.wall_high_us or 0) - (self.wall_low_us or 0)) / self.wall_us
        faster = self.speedup if self.device_speedup is None else self.device_speedup
        return (
            self.side,
            f"{_figure(self.wall_us)} ±{spread:.0f}%",
            "" if self.device_us is None else _figure(self.device_us),
            "" if faster is None or self.side == self.against else f"{faster:.2f}x",
            "" if self.temporary_mb is None else f"{self.temporary_mb:,.1f}",
        )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


class ProductReport(BaseReport[ProductRow], frozen=True):
    """All rows of a run of a benchmark of products."""

    def groups(self) -> Iterator[tuple[tuple[str, str, str], list[ProductRow]]]:
        """((case, what, dtype), its rows), in the order of measurement."""
        for key, rows in itertools.groupby(self.rows, lambda row: (row.case, row.what, row.dtype)):
            yield key, list(rows)

    def legend(self) -> str:
        """What the figures of the tables are."""
        return LEGEND

    def tables(self) -> Iterator[str]:
        """A table for each case, product and dtype."""
        for (case, what, dtype), rows in self.groups():
            yield from ("", f"## {case}, {dtype}, {what}", "", _conditions(rows), "")
            yield from (f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|")
            yield from (f"| {' | '.join(row.cells())} |" for row in rows)


def _conditions(rows: list[ProductRow]) -> str:
    return f"Chains of {rows[0].calls} calls, {rows[0].rotated_mb:.3g} MB of distinct inputs."


def show_products(report: ProductReport, console: Console, *, remark: str = "") -> None:
    """Print a table for each case, product and dtype; then what the figures are, `remark`, and the
    machine.
    """
    for (case, what, dtype), rows in report.groups():
        table = Table(title=f"{rows[0].op} {case}, {dtype}, {what}", title_justify="left")
        for head in HEADS:
            table.add_column(head, justify="left" if head == "side" else "right")
        for row in rows:
            table.add_row(*row.cells(), style=None if row.correct else "bold red")
        console.print(table)
        for note in dict.fromkeys(f"{r.side}: {r.note}" for r in rows if r.note):
            console.print(note, style="red", markup=False)
    console.print(LEGEND, remark, markup=False)
    console.print(f"Measured on {report.provenance.device}.", markup=False)
