"""Problems that no tuning table holds, drawn from a seed: ours beside XLA dense, torch where it is
installed, and every variant. Prints speed-ups by density, the share that is slower than dense, the
time lost to the best variant, rank correlation, and the worst ten with their `js.explain`.

    python benchmarks/unseen.py --op masked_conv --dtype bfloat16 --seed 7 --count 200
    python benchmarks/unseen.py --op masked_conv --dtype bfloat16 --seconds 140 --report conv.md

Without --count it draws until the seconds are spent, in equal parts for each op and dtype. A chain
makes its calls in a loop inside of one program, for about --chain-ms, so that what the host does
once per chain does not count. --jobs, on a GPU: processes that compile at once and measure in
turns, each alone. Exits with 1 when a result is wrong or a side fails.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import msgspec
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from jaxsparse.bench.measure.timing import ALONE
from jaxsparse.bench.measure.turns import VARIABLE, Turns
from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.unseen.draw import CPU, GPU, OPS, Drawn, draw
from jaxsparse.bench.unseen.run import How, Seen, see
from jaxsparse.bench.unseen.summary import markdown, summary, told, worst
from jaxsparse.core.device import cores

#: Begins to measure a problem.
Begin = Callable[[Drawn], "concurrent.futures.Future[Seen]"]
#: Problems of an op and dtype where neither a count nor seconds are given, and the most.
USUAL, MOST = 200, 100_000
#: On a GPU. What the host does once a chain takes about .7 ms: a fortieth.
CHAIN_MS = 30.0


def main() -> int:
    """Command line."""
    parser = arguments()
    given = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", str(given.jobs < 2).lower())
    gpu = jax.default_backend() == "gpu"
    chain_ms = (CHAIN_MS if gpu else 0.0) if given.chain_ms is None else given.chain_ms
    if given.jobs > 1 and not gpu:
        parser.error("--jobs: on a CPU processes at once would disturb each other's times")
    threads = max(min(cores() // given.jobs, 8), 1) if gpu else 1
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
        total = None if given.seconds else count - given.skip
        with started(given.jobs, how) as begin_one:
            for one in measured(
                problems, begin_one, given.jobs, end, f"{op} {dtype}", total, console
            ):
                found.append(one)
                if given.out:
                    with given.out.open("ab") as file:
                        file.write(msgspec.json.encode(one) + b"\n")
        found.sort(key=lambda one: one.number)
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
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile at once")
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


@contextlib.contextmanager
def started(jobs: int, how: How) -> Iterator[Begin]:
    """A function that begins to measure a problem, in one of `jobs` processes."""
    if jobs < 2:
        yield functools.partial(at_once, how=how)
        return
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as own:
        folder = Path(os.environ.get(VARIABLE, own))
        with concurrent.futures.ProcessPoolExecutor(jobs, spawn, share, (folder,)) as pool:
            yield lambda problem: pool.submit(in_turn, problem, how)


def at_once(problem: Drawn, how: How) -> "concurrent.futures.Future[Seen]":
    """Measure in this process."""
    done: concurrent.futures.Future[Seen] = concurrent.futures.Future()
    done.set_result(see(problem, how))
    return done


def share(folder: Path) -> None:
    """Of a process: what is timed has the device for itself."""
    global _turns  # one process, one lock
    _turns = Turns(folder)
    ALONE.set(_turns.measure)


def in_turn(problem: Drawn, how: How) -> Seen:
    """Measure in a process that shares the device."""
    with _turns.prepare():
        return see(problem, how)


def measured(
    problems: Iterator[Drawn],
    begin: Begin,
    jobs: int,
    end: float,
    title: str,
    total: int | None,
    console: Console,
) -> Iterator[Seen]:
    """Measure problems, begin none after `end`; they come as they are done."""
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    waiting = set[concurrent.futures.Future[Seen]]()
    problems = itertools.takewhile(lambda _: time.monotonic() <= end, problems)
    with Progress(*columns, console=console, transient=True) as bar:
        task, done = bar.add_task(title, total=total), 0
        while True:
            waiting |= {begin(p) for p in itertools.islice(problems, jobs - len(waiting))}
            if not waiting:
                return
            ready, waiting = concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED")
            for each in ready:
                yield each.result()
            done += len(ready)
            bar.update(task, completed=done, description=f"{title}, {done} problems")


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
