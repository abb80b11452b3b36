"""A mixture of experts three ways: one expert after the other, all in one padded batch, and with
the rows of each expert gathered while they are loaded (`js.nn.linen.MoE`).

Time and temporary memory, forward and forward + backward, over the number of experts; every output
is checked. On a GPU the sizes of a switch transformer (d 768, hidden 3072, 8 to 256 experts,
batches of 8 and 32 rows of 128 tokens), on a CPU small ones. `python examples/moe_compare.py
[--quick] [--case NAME] [--dtype bfloat16] [--out DIR]`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from matplotlib.figure import Figure

from jaxsparse.bench.measure.dtypes import NAMES
from jaxsparse.bench.products.moe import OURS, PADDED, SERIAL, WHATS, comparisons
from jaxsparse.bench.products.rows import ProductRow
from jaxsparse.bench.products.run import ProductPlan, measure
from jaxsparse.testing.product_cases import MOE_CASES, MoeCase, find
from models.common import console, parser, print_table, progress, save

SIDES = (SERIAL, PADDED, OURS)
PLAN = ProductPlan(calls=1, samples=5, rotate_mb=0.0)


class Result(NamedTuple):
    """Every row that was measured, by case and what; the picture."""

    rows: dict[tuple[str, str], dict[str, ProductRow]]
    picture: Path


def milliseconds(row: ProductRow) -> float:
    """Device time where it was measured, else wall time; NaN for a side that failed."""
    taken = row.wall_us if row.device_us is None else row.device_us
    return float("nan") if taken is None else taken / 1e3


def run(cases: Sequence[MoeCase], dtype: str, out: Path, plan: ProductPlan = PLAN) -> Result:
    """Measure each case, print one table and save one picture.

    Raises:
        AssertionError: when an output of ours was wrong.
    """
    gpu = jax.default_backend() == "gpu"
    plan = dataclasses.replace(plan, device=gpu)
    found: dict[tuple[str, str], dict[str, ProductRow]] = {}
    with progress() as bar:
        task = bar.add_task("measuring", total=len(cases) * len(WHATS))
        for case in cases:
            for one in comparisons(case, dtype, plan):
                kept = {name: one.ways[name] for name in SIDES}
                one = dataclasses.replace(one, ways=kept)
                rows = {row.side: row for row in measure(one, plan, lambda side: None)}
                assert rows[OURS].correct, rows[OURS]
                found[case.name, one.what] = rows
                bar.advance(task)
    title = f"mixture of experts, {dtype}, {jax.devices()[0].device_kind}: ms (temporary MB)"
    heads = ("case", "pass", *SIDES, "against the\nbetter of the two")
    print_table(title, heads, [_cells(key, rows) for key, rows in found.items()])
    console.print("serial and padded are compiled for this batch's routing, ours for every one")
    return Result(found, draw(cases, found, out))


def _cells(key: tuple[str, str], rows: dict[str, ProductRow]) -> list[str]:
    cells = [
        f"{milliseconds(rows[side]):.2f} ({rows[side].temporary_mb or 0:.0f})"
        if rows[side].correct
        else "failed"
        for side in SIDES
    ]
    rivals = [milliseconds(rows[side]) for side in (SERIAL, PADDED) if rows[side].correct]
    faster = f"{min(rivals) / milliseconds(rows[OURS]):.2f}x" if rivals else "both failed"
    return [*key, *cells, faster]


def draw(
    cases: Sequence[MoeCase], found: dict[tuple[str, str], dict[str, ProductRow]], out: Path
) -> Path:
    """Time and memory over the number of experts, a line for each side and batch."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, len(WHATS))
    batches = sorted({case.batch for case in cases})
    for column, what in enumerate(WHATS):
        for colour, side in enumerate(SIDES):
            for line, batch in zip(("-", "--", ":"), batches, strict=False):
                own = [c for c in cases if c.batch == batch]
                rows = [found[c.name, what][side] for c in own]
                experts = [c.experts for c in own]
                style = {"color": f"C{colour}", "linestyle": line, "marker": "."}
                label = f"{side}, batch {batch}"
                axes[0, column].plot(experts, [milliseconds(r) for r in rows], label=label, **style)
                axes[1, column].plot(experts, [r.temporary_mb for r in rows], **style)
        axes[0, column].set(title=what, ylabel="ms", xscale="log", yscale="log")
        axes[1, column].set(xlabel="experts", ylabel="temporary MB", xscale="log", yscale="log")
    axes[0, 0].legend(fontsize="small")
    return save(figure, out, "moe_compare.png")


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--case", action="append", help="a case or a tag")
    command.add_argument("--dtype", choices=list(NAMES), default="float32")
    chosen = command.parse_args(argv)
    tag = "experts" if jax.default_backend() == "gpu" else "cpu"
    cases = find(MOE_CASES, chosen.case or ["quick" if chosen.quick else tag])
    plan = dataclasses.replace(PLAN, samples=2) if chosen.quick else PLAN
    return run(cases, chosen.dtype, chosen.out, plan)


if __name__ == "__main__":
    main()
