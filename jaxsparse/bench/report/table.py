"""Reports in the terminal."""

from rich.console import Console
from rich.table import Table

from jaxsparse.bench.report.crossover import crossover_text
from jaxsparse.bench.report.report import LEGEND, Report
from jaxsparse.bench.report.rows import DENSE, Row, by_side, cell, device_cell, levels


def show_report(report: Report, console: Console, *, remark: str = "") -> None:
    """Print a table for each case, mask and dtype: sides down, densities across, the crossover
    last; then what the figures are, `remark`, and the machine.
    """
    for (case, mask, dtype), rows in report.groups():
        first = rows[0]
        table = Table(title=f"{first.op} {case}, {dtype}, {mask}, tile {first.tile}")
        table.add_column("us a call (times faster)")
        densities = levels(rows)
        for pixel, tile in densities:
            table.add_column(f"{pixel:.3g} px\n{tile:.3g} tiles", justify="right")
        table.add_column("faster below\npx / tiles", justify="right")
        for side, found in by_side(rows).items():
            cells = [_coloured(found[level]) if level in found else "" for level in densities]
            table.add_row(side, *cells, crossover_text(found.values()))
        console.print(table)
        if first.device_us is not None:
            console.print(_device_table(rows))
        for note in dict.fromkeys(f"{r.side}: {r.note}" for r in rows if r.note):
            console.print(note, style="red", markup=False)
    console.print(LEGEND, remark, markup=False)
    console.print(f"Measured on {report.provenance.device}.", markup=False)


def _device_table(rows: list[Row]) -> Table:
    """Device times, below the wall times."""
    table = Table(title="the same on the device")
    table.add_column("us a call (times faster)")
    densities = levels(rows)
    for pixel, tile in densities:
        table.add_column(f"{pixel:.3g} px\n{tile:.3g} tiles", justify="right")
    for side, found in by_side(rows).items():
        cells = [device_cell(found[level]) if level in found else "" for level in densities]
        table.add_row(side, *cells)
    return table


def _coloured(row: Row) -> str:
    text = cell(row)
    if not row.correct:
        return f"[bold red]{text}[/]"
    if row.side == DENSE or row.speedup is None:
        return text
    return f"[green]{text}[/]" if row.speedup >= 1 else f"[yellow]{text}[/]"
