"""Problems that no tuning table holds, drawn from a seed: ours beside XLA dense, torch where it is
installed, and every variant. Prints speed-ups by density, the share that is slower than dense, the
time lost to the best variant, rank correlation, and the worst ten with their `js.explain`.

    python benchmarks/unseen.py --op masked_conv --dtype bfloat16 --seed 7 --count 200
    python benchmarks/unseen.py --op masked_conv --dtype bfloat16 --seconds 140 --report conv.md

Without --count it draws until the seconds are spent, in equal parts for each op and dtype. A chain
makes its calls in a loop inside of one program, for about --chain-ms, so that what the host does
once per chain does not count. Exits with 1 when a result is wrong or a side fails.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import msgspec
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.unseen.draw import CPU, GPU, OPS, Drawn, draw
from jaxsparse.bench.unseen.run import How, Seen, see
from jaxsparse.bench.unseen.summary import markdown, summary, told, worst
from jaxsparse.core.device import cores

#: Problems of an op and dtype where neither a count nor seconds are given, and the most.
USUAL, MOST = 200, 100_000
#: On a GPU. What the host does once a chain takes about .7 ms: a fortieth.
CHAIN_MS = 30.0


def main() -> int:
    """Command line."""
    given = arguments().parse_args()
    gpu = jax.default_backend() == "gpu"
    chain_ms = (CHAIN_MS if gpu else 0.0) if given.chain_ms is None else given.chain_ms
    threads = min(cores(), 8) if gpu else 1
    how = How(given.samples, not given.no_variants, not given.no_torch, chain_ms, threads)
    dtypes = given.dtype or (["bfloat16", "float32"] if gpu else ["float32"])
    parts = list(itertools.product(given.op or OPS, dtypes))
    console, begin, fault = Console(width=150), time.monotonic(), False
    source = provenance(command_line())
    console.print("\n".join(source.lines()), highlight=False)
    for path in filter(None, (given.out, given.report)):
        path.write_bytes(b"")
    lines = ["# Unseen problems", "", *(f"- {line}" for line in source.lines()), ""]
    for place, (op, dtype) in enumerate(parts):
        count = given.count or (MOST if given.seconds else USUAL)
        problems = problems_of(op, dtype, given.seed, given.skip, count, gpu=gpu)
        end = begin + given.seconds * (place + 1) / len(parts) if given.seconds else float("inf")
        found: list[Seen] = []
        for one in measured(problems, how, end, f"{op} {dtype}", count - given.skip, console):
            found.append(one)
            if given.out:
                with given.out.open("ab") as file:
                    file.write(msgspec.json.encode(one) + b"\n")
        title = f"{op} {dtype}, seed {given.seed}"
        show(console, title, found)
        lines += markdown(title, found)
        if given.report:
            given.report.write_text("\n".join(lines))
        fault |= any(one.wrong for one in found)
    return fault


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--op", action="append", choices=list(OPS), help="repeatable; default: all")
    parser.add_argument("--dtype", action="append", help="default: bfloat16 and float32 (TF32)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help=f"of an op and dtype; {USUAL} without --seconds")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first problems")
    parser.add_argument("--samples", type=int, default=5, help="timed rounds")
    parser.add_argument(
        "--chain-ms", type=float, help=f"of a chain, about; default: {CHAIN_MS:g} on a GPU"
    )
    parser.add_argument("--no-variants", action="store_true", help="ours, dense and torch alone")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--seconds", type=float, help="begin no problem after that")
    parser.add_argument("--out", type=Path, help="JSON lines, written as they come")
    parser.add_argument("--report", type=Path, help="the tables as Markdown, with provenance")
    return parser


def problems_of(
    op: str, dtype: str, seed: int, skip: int, count: int, *, gpu: bool
) -> Iterator[Drawn]:
    """Problems from `skip` to `count`, drawn as they are asked for."""
    limits, size = (GPU if gpu else CPU), 50
    for begin in range(skip, count, size):
        yield from draw(op, seed, min(begin + size, count), dtype, limits)[begin:]


def measured(
    problems: Iterator[Drawn], how: How, end: float, title: str, total: int, console: Console
) -> Iterator[Seen]:
    """Measure problems until the clock is at `end`."""
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total if end == float("inf") else None)
        for problem in problems:
            if time.monotonic() > end:
                return
            yield see(problem, how)
            bar.update(task, advance=1, description=f"{title}, {problem.number + 1} problems")


def show(console: Console, title: str, found: list[Seen]) -> None:
    """The summary, and the worst ten."""
    table = Table(title=f"{title}, unseen problems", show_header=False)
    for what, figure in summary(found):
        table.add_row(what, figure)
    console.print(table)
    for one in worst(found):
        console.print(told(one))
        console.print("\n".join([*one.wrong, *one.why.splitlines()[:3]]), style="dim")


if __name__ == "__main__":
    raise SystemExit(main())
