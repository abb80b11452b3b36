"""`jaxsparse bench grouped_matmul | masked_matmul | moe | sparse_attention`: command lines."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jaxsparse.bench.products import grouped_matmul as grouped
from jaxsparse.bench.products import masked_matmul as masked
from jaxsparse.bench.products import moe as mixture
from jaxsparse.bench.products import sparse_attention as attention
from jaxsparse.bench.products.rows import ProductReport, ProductRow, show_products
from jaxsparse.bench.products.run import Comparison, ProductPlan, measure, platform_name
from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.report.report import make_folders
from jaxsparse.testing.attention_cases import ATTENTION_CASES
from jaxsparse.testing.product_cases import (
    GROUPED_CASES,
    MATMUL_CASES,
    MOE_CASES,
    Named,
    find,
)

QUICK = ProductPlan(calls=2, samples=2, rotate_mb=0.0)
NOISY = "Few samples (--quick): noisy."

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", help="A case or a tag (cpu, gpu, quick). Repeatable."),
]


def _case_option(table: Mapping[str, Named]) -> Any:
    """`--case`, with every name and tag of a table of cases."""
    tags = ", ".join(sorted(set().union(*(case.tags for case in table.values()))))
    text = f"A case, or a tag: {tags}. Repeatable; default: cpu or gpu. Cases: {', '.join(table)}."
    return typer.Option("--case", help=text)


GroupedNames = Annotated[list[str] | None, _case_option(GROUPED_CASES)]
MatmulNames = Annotated[list[str] | None, _case_option(MATMUL_CASES)]
MoeNames = Annotated[list[str] | None, _case_option(MOE_CASES)]
AttentionNames = Annotated[list[str] | None, _case_option(ATTENTION_CASES)]
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


def grouped_matmul(
    case_names: GroupedNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(grouped.WHATS)}. Repeatable; default: all."),
    ] = None,
    calls: Calls = 10,
    samples: Samples = 15,
    device: Device = None,
    rivals: Rivals = True,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time grouped products beside ragged_dot and others.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, rivals, quick)

    def found() -> Iterator[Comparison]:
        for case in find(GROUPED_CASES, case_names or [default_tag(quick)]):
            for one in dtype or ["float32"]:
                yield from grouped.comparisons(case, one, plan, what or grouped.WHATS)

    finish(found(), plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def masked_matmul(
    case_names: MatmulNames = None,
    dtype: Dtypes = None,
    sparsity: Annotated[
        list[float] | None, typer.Option(help="Share of the blocks unset. Repeatable.")
    ] = None,
    calls: Calls = 10,
    samples: Samples = 15,
    device: Device = None,
    rivals: Rivals = True,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time masked products beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, rivals, quick)
    shares = sparsity or ((0.9,) if quick else masked.SPARSITIES)

    def found() -> Iterator[Comparison]:
        for case in find(MATMUL_CASES, case_names or [default_tag(quick)]):
            for one in dtype or ["float32"]:
                yield from masked.comparisons(case, one, plan, shares)

    finish(found(), plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def moe(
    case_names: MoeNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(mixture.WHATS)}. Repeatable; default: all."),
    ] = None,
    calls: Calls = 1,
    samples: Samples = 15,
    device: Device = None,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time mixtures of experts beside others.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, True, quick)

    def found() -> Iterator[Comparison]:
        for case in find(MOE_CASES, case_names or [default_tag(quick)]):
            for one in dtype or ["float32"]:
                yield from mixture.comparisons(case, one, plan, what or mixture.WHATS)

    finish(found(), plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def sparse_attention(
    case_names: AttentionNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(attention.WHATS)}. Repeatable; default: all."),
    ] = None,
    sparsity: Annotated[
        list[float] | None, typer.Option(help="Share of the blocks unset. Repeatable.")
    ] = None,
    calls: Calls = 1,
    samples: Samples = 15,
    device: Device = None,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time attention under masks of blocks beside jax.nn's.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, True, quick)
    shares = sparsity or ((0.9,) if quick else attention.SPARSITIES)

    def found() -> Iterator[Comparison]:
        for case in find(ATTENTION_CASES, case_names or [default_tag(quick)]):
            for one in dtype or ["float32"]:
                yield from attention.comparisons(case, one, plan, shares, what or attention.WHATS)

    finish(found(), plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def make_plan(
    calls: int, samples: int, device: bool | None, rivals: bool, quick: bool
) -> ProductPlan:
    """The plan of a command line."""
    device = platform_name() != "cpu" if device is None else device
    if quick:
        return dataclasses.replace(QUICK, device=device, rivals=rivals)
    return ProductPlan(calls=calls, samples=samples, device=device, rivals=rivals)


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
    json_file: Path | None,
    csv_file: Path | None,
    markdown_file: Path | None,
    remark: str = "",
) -> None:
    """Measure, print and write.

    Raises:
        typer.BadParameter: for a name that does not exist, or a file that cannot be written.
        typer.Exit: with status 1 when a row is not correct.
    """
    try:
        make_folders(json_file, csv_file, markdown_file)
        report = run(found, plan)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    show_products(report, console, remark=remark)
    for form, file in (("json", json_file), ("csv", csv_file), ("markdown", markdown_file)):
        if file is not None:
            report.write(file, form)
    if not report.correct:
        wrong = [f"{r.case} {r.what} {r.side}" for r in report.rows if not r.correct]
        console.print(f"not correct: {', '.join(dict.fromkeys(wrong))}", style="bold red")
        raise typer.Exit(1)
