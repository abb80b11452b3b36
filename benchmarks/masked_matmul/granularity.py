"""Speed of `masked_matmul` over XLA's dense product by the size of the blocks and the share of them
that is left out: masks on a, on b and on the result.

    python benchmarks/masked_matmul/granularity.py [--size 1024] [--masked a b out] [--samples 7]
        [--block 1x1 32x64 ...] [--share 0.5 0.99 ...] [--quick] [--out FOLDER]

Random masks. `js.masked_matmul` is given the bool mask, and its index is part of the time; on a GPU
it is told the share that is kept (`density=`), by which it chooses. Dense has no mask. Both are
timed in turns in one process, as chains of calls on distinct inputs (docs/measuring.md), and every
timed output is compared with the product in float32. Writes `granularity_<device>.md` and `.svg` to
FOLDER, benchmarks/results/products by default. Exit status 1 when an output was wrong.
"""

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import jaxsparse as js
from jaxsparse.bench.products.masked_matmul import DENSE, comparisons
from jaxsparse.bench.products.run import ProductPlan, element_type, measure, normal, platform_name
from jaxsparse.bench.report.crossover import crossover
from jaxsparse.bench.report.provenance import Provenance, command_line, device_slug, provenance
from jaxsparse.testing.product_cases import MatmulCase

BLOCKS = ((1, 1), (1, 64), (2, 1), (4, 1), (8, 1), (32, 1), (32, 64))
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
OURS = "jaxsparse"
OPERANDS = {"a": "a", "b": "b", "out": "the result"}
Block = tuple[int, int]
Sizes = tuple[int, int, int]


class Curve(NamedTuple):
    """One block size: what ran, the speeds over dense by share left out, microseconds of the dense
    product, and what was wrong.
    """

    block: Block
    ran: str
    speeds: dict[float, float]
    dense_us: float
    wrong: list[str]


class Panel(NamedTuple):
    """The curves of one shape (m, k, n) and one masked operand."""

    title: str
    curves: list[Curve]


def variant(case: MatmulCase, dtype: str, share: float, told: bool) -> str:
    """What a call runs."""
    kind = element_type(dtype)
    given = {f"{case.masked}_mask": jnp.asarray(case.mask(share))}
    density = 1 - share if told else None
    call = functools.partial(js.masked_matmul, granularity=case.block, density=density)
    a, b = normal((case.m, case.k), kind, 0), normal((case.k, case.n), kind, 1)
    (found,) = js.explain(call, a, b, **given).calls
    return found.variant(found.counts[0])


def speed(case: MatmulCase, dtype: str, share: float, plan: ProductPlan) -> tuple[float, float]:
    """Times faster than the dense product, and the microseconds of that; NaN for a wrong result."""
    (one,) = comparisons(case, dtype, plan, [share])
    one = dataclasses.replace(one, ways={OURS: one.ways[OURS]})
    rows = {row.side: row for row in measure(one, plan, lambda side: None)}
    mine, dense = rows[OURS], rows[DENSE]
    if not (mine.correct and dense.correct):
        return math.nan, math.nan
    if mine.device_speedup is not None and dense.device_us is not None:
        return mine.device_speedup, dense.device_us
    return mine.speedup or math.nan, dense.wall_us or math.nan


def curve(
    case: MatmulCase,
    dtype: str,
    shares: Sequence[float],
    plan: ProductPlan,
    on_point: Callable[[], None],
) -> Curve:
    """The speeds of one block size; `on_point` is called after each share."""
    ran: dict[str, None] = {}
    speeds, dense, wrong = {}, [], []
    for share in shares:
        ran[variant(case, dtype, share, plan.told)] = None
        faster, us = speed(case, dtype, share, plan)
        if math.isnan(faster):
            wrong.append(f"{case.name}, {share:.1%} left out: wrong result")
        else:
            speeds[share] = faster
            dense.append(us)
        on_point()
    middle = sorted(dense)[len(dense) // 2] if dense else math.nan
    return Curve(case.block, ", ".join(ran), speeds, middle, wrong)


def panels(
    shapes: Sequence[Sizes],
    masked: Sequence[str],
    blocks: Sequence[Block],
    shares: Sequence[float],
    dtype: str,
    plan: ProductPlan,
) -> list[Panel]:
    """Everything measured: every operand with the first shape, a alone with the others."""
    todo = [(shapes[0], one) for one in masked] + [(shape, "a") for shape in shapes[1:]]
    bar = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    found: list[Panel] = []
    with Progress(*bar, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(todo) * len(blocks) * len(shares))
        for (m, k, n), operand in todo:
            panel = Panel(f"{m}x{k} by {k}x{n}, mask on {OPERANDS[operand]}", [])
            found.append(panel)
            for block in blocks:
                name = f"{m}x{k}x{n} {operand} {block[0]}x{block[1]}"
                progress.update(task, description=name)
                case = MatmulCase(name, m, k, n, block, operand)
                step = functools.partial(progress.advance, task)
                panel.curves.append(curve(case, dtype, shares, plan, step))
    return found


def ahead(speeds: dict[float, float]) -> str:
    """The share left out from which `js.masked_matmul` is faster than dense, in words."""
    kept = crossover([1 - share for share in speeds], list(speeds.values()))
    if kept is None:
        return "at " + ", ".join(f"{100 * s:g} %" for s, faster in speeds.items() if faster >= 1)
    return "always" if math.isinf(kept) else f"{100 * (1 - kept):.1f} %" if kept else "never"


def lines(found: Sequence[Panel], where: Provenance, dtype: str, plan: ProductPlan) -> list[str]:
    """The results file."""
    told = " and the share that is kept" * plan.told
    taken = "GPU time between calls" if plan.device else "wall time"
    text = [
        "# Granularity",
        "",
        *(f"- {fact}" for fact in where.lines()),
        "",
        f"Times faster than XLA's dense product, {dtype}, by the share of blocks that a random "
        f"mask leaves out. `js.masked_matmul` is given the bool mask{told}; the dense product has "
        f"none. Medians of {plan.samples} rounds in turns, {taken} a call in chains of "
        f"{plan.calls} calls; every timed output was checked. *Ahead from*: where the curve passes "
        "1, linear in the logarithm of the speed between measured shares.",
    ]
    for panel in found:
        shares = list(dict.fromkeys(s for one in panel.curves for s in one.speeds))
        heads = ["block", "runs", *(f"{100 * s:g} %" for s in shares), "ahead from", "dense us"]
        text += ["", f"## {panel.title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for one in panel.curves:
            speeds = [f"{one.speeds[s]:.2f}" if s in one.speeds else "wrong" for s in shares]
            block = f"{one.block[0]}x{one.block[1]}"
            cells = [block, f"`{one.ran}`", *speeds, ahead(one.speeds), f"{one.dense_us:,.0f}"]
            text.append(f"| {' | '.join(cells)} |")
    return text


def draw(found: Sequence[Panel], where: Provenance, path: Path) -> None:
    """Speed over the share left out, a curve for each block size, rings where it passes dense."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(2, len(found))
    height = math.ceil(len(found) / columns)
    figure = Figure(figsize=(5.6 * columns, 4 * height), layout="constrained")
    for number, panel in enumerate(found, 1):
        axes = figure.add_subplot(height, columns, number)
        axes.axhline(1, color="black", linewidth=0.8, label="dense" if number == 1 else None)
        for colour, one in enumerate(panel.curves):
            kept, speeds = [1 - share for share in one.speeds], list(one.speeds.values())
            label = f"{one.block[0]}x{one.block[1]}" if number == 1 else None
            axes.plot(kept, speeds, marker=".", color=f"C{colour}", label=label)
            at = crossover(kept, speeds)
            if at is not None and 0 < at < math.inf:
                axes.plot([at], [1], marker="o", markersize=9, fillstyle="none", color=f"C{colour}")
        shares = list(dict.fromkeys(s for one in panel.curves for s in one.speeds))
        axes.set(xscale="log", yscale="log", xlabel="share left out", ylabel="times faster")
        axes.invert_xaxis()
        axes.set_xticks([1 - s for s in shares], [f"{100 * s:g} %" for s in shares], fontsize=8)
        axes.minorticks_off()
        axes.set_yticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], ["¼", "½", *"1248", "16", "32"])
        least, most = (
            f(v for one in panel.curves for v in one.speeds.values()) for f in (min, max)
        )
        axes.set_ylim(0.9 * min(least, 0.9), 1.15 * max(most, 1.2))
        axes.set_title(panel.title, fontsize=10)
    caption = f"masked_matmul over dense; {where.device}; {where.date}; commit {where.commit}"
    figure.suptitle(caption, fontsize="small")
    figure.legend(loc="outside right center", title="block", fontsize="small")
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "granularity"}):
        figure.savefig(path, metadata={"Date": None})


def pair(text: str) -> Block:
    """A block as it is written on the command line, "32x64"."""
    rows, _, columns = text.partition("x")
    return int(rows), int(columns)


def main() -> int:
    """Measure, print and write; returns the exit status."""
    gpu = platform_name() != "cpu"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--size", type=int, default=4096 if gpu else 1024, help="of the square case"
    )
    parser.add_argument("--masked", nargs="+", default=[*OPERANDS], choices=OPERANDS)
    parser.add_argument("--block", type=pair, nargs="+", default=BLOCKS)
    parser.add_argument("--share", type=float, nargs="+", default=SHARES, help="left out")
    parser.add_argument("--samples", type=int, default=15 if gpu else 7, help="timed rounds")
    parser.add_argument("--calls", type=int, default=4, help="of a chain")
    parser.add_argument("--dtype", default="bfloat16" if gpu else "float32")
    parser.add_argument("--quick", action="store_true", help="the square case, noisy")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/products"))
    given = parser.parse_args()
    shapes: list[Sizes] = [(given.size, given.size, given.size)]
    if not given.quick:
        shapes.append((8192, 768, 3072) if gpu else (512, 768, 3072))
    samples = 2 if given.quick else given.samples
    megabytes = 0.0 if given.quick else 64.0
    plan = ProductPlan(given.calls, 1, samples, megabytes, device=gpu, rivals=False, told=gpu)
    where = provenance(command_line())
    found = panels(shapes, given.masked, given.block, given.share, given.dtype, plan)
    text = lines(found, where, given.dtype, plan)
    print("\n".join(text))
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"granularity_{device_slug(where.device)}"
    picture = f"![Times faster than dense over the share left out]({name}.svg)"
    (given.out / f"{name}.md").write_text("\n".join([*text, "", picture]) + "\n")
    draw(found, where, given.out / f"{name}.svg")
    wrong = [each for panel in found for one in panel.curves for each in one.wrong]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
