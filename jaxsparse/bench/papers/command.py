"""`jaxsparse papers PAPER`: a paper's tables and figures, measured on this machine beside what the
paper reports.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from jaxsparse.bench.papers import dynaspa, glare, sparda, spardr, sparsert
from jaxsparse.bench.papers.exhibit import HEADS, Exhibit, Line, PaperReport, Setting, lines_of
from jaxsparse.bench.products.run import ProductPlan, platform_name
from jaxsparse.bench.report.provenance import command_line, device, device_slug, provenance
from jaxsparse.bench.report.report import make_folders

PAPERS: dict[str, tuple[Exhibit, ...]] = {
    "dynaspa": dynaspa.EXHIBITS,
    "glare": glare.EXHIBITS,
    "sparda": sparda.EXHIBITS,
    "spardr": spardr.EXHIBITS,
    "sparsert": sparsert.EXHIBITS,
}


def papers(
    paper: Annotated[str, typer.Argument(help=f"One of {', '.join(PAPERS)}.")],
    only: Annotated[
        list[str] | None,
        typer.Option(help='Only this table or figure, as "Table 1". May be repeated.'),
    ] = None,
    full: Annotated[
        bool | None,
        typer.Option(
            "--full/--small",
            help="Every case at the paper's size, or a few small ones; default: full on a GPU.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write tables.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write tables to <paper>_<device>.md in this folder."),
    ] = None,
) -> None:
    """Measure a paper's tables and figures beside what the paper reports.

    Every result is checked; the exit status is 1 when one is wrong. A table or figure that cannot
    be reproduced is listed with the reason.
    """
    if paper not in PAPERS:
        raise typer.BadParameter(f"{paper!r} is not one of {', '.join(PAPERS)}", param_hint="PAPER")
    chosen = _chosen(PAPERS[paper], only)
    out_file = None if out is None else out / f"{paper}_{device_slug(device())}.md"
    try:
        make_folders(json_file, markdown_file, out_file)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    whole = platform_name() != "cpu" if full is None else full
    report = run(paper, chosen, whole, samples)
    console = Console()
    show(report, console)
    files = (("json", json_file), ("markdown", markdown_file), ("markdown", out_file))
    for form, file in files:
        if file is not None:
            report.write(file, form)
    if not report.correct:
        raise typer.Exit(1)


def _chosen(exhibits: tuple[Exhibit, ...], only: list[str] | None) -> list[Exhibit]:
    """The exhibits whose label begins with one of `only`.

    Raises:
        typer.BadParameter: for a name that no label begins with.
    """
    if not only:
        return list(exhibits)
    known = [exhibit.label for exhibit in exhibits]
    for name in only:
        if not any(label.lower().startswith(name.lower()) for label in known):
            raise typer.BadParameter(f"--only {name!r} is not one of {', '.join(known)}")
    starts = tuple(name.lower() for name in only)
    return [exhibit for exhibit in exhibits if exhibit.label.lower().startswith(starts)]


def run(paper: str, exhibits: list[Exhibit], whole: bool, samples: int) -> PaperReport:
    """Measure the exhibits, `whole` at the paper's sizes; the progress goes to standard error."""
    gpu = platform_name() != "cpu"
    plan = ProductPlan(calls=4, samples=samples, device=gpu, rotate_mb=64.0 if whole else 0.0)
    lines: list[Line] = []
    where = provenance(command_line())
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(paper, total=None)
        for exhibit in exhibits:

            def on_step(what: str, label: str = exhibit.label) -> None:
                progress.update(task, description=f"{paper}, {label}: {what}")

            setting = Setting(whole, gpu, plan, on_step)
            lines += lines_of(paper, exhibit, setting)
    return PaperReport(where, tuple(lines), whole)


def show(report: PaperReport, console: Console) -> None:
    """Print the tables, then those that were not reproduced, with the reasons."""
    missing: list[str] = []
    for label, lines in report.exhibits().items():
        if lines[0].missing:
            missing.append(f"{label} ({lines[0].title}): {lines[0].missing}{_published(lines[0])}")
            continue
        table = Table(title=f"{label}: {lines[0].title}", title_justify="left")
        for head in HEADS:
            table.add_column(head, overflow="fold")
        for line in lines:
            table.add_row(line.case, line.paper, line.here, style=None if line.correct else "red")
        console.print(table)
        console.print(f"{lines[0].conditions}{_published(lines[0])}", markup=False)
    if missing:
        console.print("Not measured here:")
        for text in missing:
            console.print(f"- {text}", markup=False)
    console.print(report.legend(), markup=False)
    console.print(f"Measured on {report.provenance.device}.", markup=False)


def _published(line: Line) -> str:
    """Where the figures of another machine are."""
    files = ", ".join(f"benchmarks/results/{path}" for path in line.published)
    return f" Published: {files}." if files else ""
