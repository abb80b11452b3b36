"""`jaxsparse bench`: the commands of the benchmarks, and that of masked_conv."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from jaxsparse.bench.challenge import command as challenge
from jaxsparse.bench.masked_conv.run import OP, Plan, measure, platform_name
from jaxsparse.bench.products import command as product_command
from jaxsparse.bench.products import pruned_command
from jaxsparse.bench.products.measured import NOISY
from jaxsparse.bench.report.plot import plot_report
from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.report.report import Report, make_folders
from jaxsparse.bench.report.table import show_report
from jaxsparse.select.config import SELECTIONS
from jaxsparse.testing import ConvCase, case, cases

QUICK = Plan(densities=(0.1, 0.5, 1.0), samples=3, rotate_mb=0.0)


app = typer.Typer(
    help="Time an op side by side with others, every output checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(OP)
def bench(
    case_names: Annotated[
        list[str] | None,
        typer.Option("--case", help="A case, or a tag: cpu, gpu, odd, quick. Repeatable."),
    ] = None,
    density: Annotated[list[float] | None, typer.Option(help="0 to 1. Repeatable.")] = None,
    by: Annotated[str, typer.Option(help="Densities are of: pixel, tile.")] = "pixel",
    mask: Annotated[
        list[str] | None,
        typer.Option(help="blobs, fine_blobs, edges, rectangles, random. Repeatable."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="float32, highest, bfloat16, float16. Repeatable."),
    ] = None,
    selection: Annotated[
        list[str] | None, typer.Option(help="static, device, switch. Repeatable.")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="A variant, or none. Repeatable; default: all.")
    ] = None,
    tile: Annotated[str | None, typer.Option(help="The index's tile, as 4x4.")] = None,
    index_every: Annotated[
        int,
        typer.Option(
            min=0, help="Calls that share an index built inside the timing; 0: built before."
        ),
    ] = 2,
    calls: Annotated[int, typer.Option(min=1, help="Calls in a chain.")] = 10,
    samples: Annotated[int | None, typer.Option(min=1, help="Timed rounds.")] = None,
    device: Annotated[bool | None, typer.Option(help="Device time too; default: on a GPU.")] = None,
    torch: Annotated[bool, typer.Option(help="torch beside it, where installed.")] = True,
    quick: Annotated[bool, typer.Option(help="Few samples (noisy), one small case.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write CSV.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Write a picture.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write a table.")] = None,
) -> None:
    """Time masked convolutions beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = dataclasses.replace(
        QUICK if quick else Plan(),
        by=_one_of("by", by, ("pixel", "tile")),
        tile=parse_tile(tile),
        index_every=index_every,
        calls=calls,
        torch=torch,
        device=platform_name() != "cpu" if device is None else device,
    )
    if density:
        plan = dataclasses.replace(plan, densities=tuple(density))
    if samples:
        plan = dataclasses.replace(plan, samples=samples)
    if selection:
        ways = tuple(_one_of("selection", s, SELECTIONS) for s in selection)
        plan = dataclasses.replace(plan, selections=ways)
    if variant:
        plan = dataclasses.replace(plan, variants=tuple(v for v in variant if v != "none"))
    try:
        make_folders(json_file, csv_file, markdown_file, plot_file)
        chosen = find_cases(case_names or ["quick" if quick else platform_tag()])
        report = run(chosen, mask or ["blobs"], dtype or ["float32"], plan)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    show_report(report, console, remark=NOISY if quick else "")
    for form, file in (("json", json_file), ("csv", csv_file), ("markdown", markdown_file)):
        if file is not None:
            report.write(file, form)
    if plot_file is not None:
        plot_report(report, plot_file)
    if not report.correct:
        wrong = [f"{r.case} {r.side}" for r in report.rows if not r.correct]
        console.print(f"not correct: {', '.join(dict.fromkeys(wrong))}", style="bold red")
        raise typer.Exit(1)


app.command("grouped_matmul")(product_command.grouped_matmul)
app.command("masked_matmul")(product_command.masked_matmul)
app.command("moe")(product_command.moe)
app.command("sparse_attention")(product_command.sparse_attention)
app.command("sparse_ffn")(product_command.sparse_ffn)
app.command("pruned_matmul")(pruned_command.pruned_matmul)
app.command("pruned_conv")(pruned_command.pruned_conv)
app.command("challenge")(challenge.main)


def run(chosen: list[ConvCase], masks: list[str], dtypes: list[str], plan: Plan) -> Report:
    """Measure every case with every mask and dtype, a progress bar on the terminal's standard
    error.
    """
    rows = []
    where = provenance(command_line())
    total = len(chosen) * len(masks) * len(dtypes) * len(plan.densities)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        for one in chosen:
            for mask in masks:
                for dtype in dtypes:

                    def on_step(side: str, text: str = f"{one.name} {dtype} {mask}") -> None:
                        progress.update(task, description=f"{text}: {side}")

                    for found in measure(one, mask, dtype, plan, on_step):
                        rows += found
                        progress.advance(task)
    return Report(where, tuple(rows))


def find_cases(names: list[str]) -> list[ConvCase]:
    """Cases by name or tag, each once.

    Raises:
        ValueError: for a name that is neither.
    """
    tags = {"cpu", "gpu", "odd", "quick"}
    found = [c for name in names for c in (cases(name) if name in tags else [case(name)])]
    return list(dict.fromkeys(found))


def platform_tag() -> str:
    """The tag of the cases that this machine's platform is measured on."""
    return "cpu" if platform_name() == "cpu" else "gpu"


def parse_tile(text: str | None) -> tuple[int, int] | None:
    """ "4x8" as (4, 8)."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise typer.BadParameter(f"tile {text!r} is not like 4x4")
    return int(parts[0]), int(parts[1])


def _one_of(name: str, value: str, values: tuple[str, ...]) -> str:
    if value not in values:
        raise typer.BadParameter(f"{name} {value!r} is not one of {', '.join(values)}")
    return value
