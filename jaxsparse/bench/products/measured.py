"""What every benchmark of products takes on its command line, and how it is run and written."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jaxsparse.bench.products.rows import ProductReport, ProductRow, show_products
from jaxsparse.bench.products.run import Comparison, ProductPlan, measure, platform_name
from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.report.report import make_folders
from jaxsparse.testing.product_cases import Named, find

QUICK = ProductPlan(calls=2, samples=2, rotate_mb=0.0)
NOISY = "Few samples (--quick): noisy."

Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="float32, highest, bfloat16, float16. Repeatable."),
]
Calls = Annotated[int, typer.Option(min=1, help="Calls in a chain.")]
Samples = Annotated[int, typer.Option(min=1, help="Timed rounds.")]
Device = Annotated[bool | None, typer.Option(help="Device time too; default: on a GPU.")]
Rivals = Annotated[bool, typer.Option(help="Other packages beside it, where installed.")]
Quick = Annotated[bool, typer.Option(help="Few samples (noisy), one small case.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write JSON.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write CSV.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Write a table.")]


def measured(*, calls: int, rivals: bool | None = None) -> Callable[..., Callable[..., None]]:
    """Decorate a generator of comparisons, (plan, quick, its own options), to be a command: with
    those options and the ones of every benchmark, which measures, prints and writes.

    Args:
        calls: the default of `--calls`.
        rivals: whether other packages are measured where installed; None: `--rivals` says so.
    """

    beside = True if rivals is None else rivals

    def common(
        calls: Calls = calls,
        samples: Samples = 15,
        device: Device = None,
        rivals: Rivals = beside,
        quick: Quick = False,
        json_file: JsonFile = None,
        csv_file: CsvFile = None,
        markdown_file: MarkdownFile = None,
    ) -> tuple[ProductPlan, dict[str, Path | None]]:
        plan = make_plan(calls, samples, device, rivals, quick)
        files = {"json": json_file, "csv": csv_file, "markdown": markdown_file}
        return plan, files

    def decorate(comparisons: Callable[..., Iterator[Comparison]]) -> Callable[..., None]:
        own = list(inspect.signature(comparisons).parameters.values())[2:]
        every = inspect.signature(common).parameters
        shared = [p for name, p in every.items() if rivals is None or name != "rivals"]

        @functools.wraps(comparisons)
        def command(**given: Any) -> None:
            plan, files = common(**{p.name: given[p.name] for p in shared})
            options = {p.name: given[p.name] for p in own}
            quick = given["quick"]
            finish(comparisons(plan, quick, **options), plan, files, NOISY if quick else "")

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *shared)]
        command.__dict__.pop("__wrapped__")
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def make_plan(
    calls: int, samples: int, device: bool | None, rivals: bool, quick: bool
) -> ProductPlan:
    """The plan of a command line."""
    device = platform_name() != "cpu" if device is None else device
    plan = QUICK if quick else ProductPlan(calls=calls, samples=samples)
    return dataclasses.replace(plan, device=device, rivals=rivals)


def each(
    table: Mapping[str, Named], names: list[str] | None, dtypes: list[str] | None, quick: bool
) -> Iterator[tuple[Any, str]]:
    """The cases of these names or tags, each with every dtype; by default the platform's cases."""
    for case in find(table, names or [default_tag(quick)]):
        for dtype in dtypes or ["float32"]:
            yield case, dtype


def default_tag(quick: bool) -> str:
    """The tag of the cases that this machine's platform is measured on."""
    return "quick" if quick else "cpu" if platform_name() == "cpu" else "gpu"


def run(comparisons: Iterable[Comparison], plan: ProductPlan) -> ProductReport:
    """Measure every comparison, what runs on the terminal's standard error."""
    rows: list[ProductRow] = []
    where = provenance(command_line())
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("drawing inputs", total=None)
        for one in comparisons:

            def on_step(side: str, text: str = f"{one.case} {one.dtype} {one.what}") -> None:
                progress.update(task, description=f"{text}: {side}")

            rows += measure(one, plan, on_step)
    return ProductReport(where, tuple(rows))


def finish(
    found: Iterator[Comparison],
    plan: ProductPlan,
    files: Mapping[str, Path | None],
    remark: str,
) -> None:
    """Measure, print and write.

    Raises:
        typer.BadParameter: for a name that does not exist, or a file that cannot be written.
        typer.Exit: with status 1 when a row is not correct.
    """
    try:
        make_folders(*files.values())
        report = run(found, plan)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    show_products(report, console, remark=remark)
    for form, file in files.items():
        if file is not None:
            report.write(file, form)
    if not report.correct:
        wrong = [f"{r.case} {r.what} {r.side}" for r in report.rows if not r.correct]
        console.print(f"not correct: {', '.join(dict.fromkeys(wrong))}", style="bold red")
        raise typer.Exit(1)
