"""Problems that no tuning table holds, drawn from a seed: ours beside XLA dense, torch where it is,
and every variant. Prints speed-ups by density, the share that loses to dense, regret, and the worst
ten with what `js.explain` says of them.

    python benchmarks/unseen.py --op masked_conv --dtype bfloat16 --seed 7 --count 200

Exits 1 when a result is wrong or a side fails.
"""

import argparse
import time
from pathlib import Path

import jax
import msgspec
from rich.console import Console
from rich.progress import track
from rich.table import Table

from jaxsparse.bench.report.provenance import command_line, provenance
from jaxsparse.bench.unseen.draw import CPU, GPU, OPS, draw
from jaxsparse.bench.unseen.run import How, Seen, see
from jaxsparse.bench.unseen.summary import summary, worst


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--op", action="append", choices=list(OPS), help="repeatable; default: all")
    parser.add_argument("--dtype", action="append", help="default: bfloat16 and float32 (TF32)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="problems of an op and dtype")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first problems")
    parser.add_argument("--samples", type=int, default=5, help="timed rounds")
    parser.add_argument("--no-variants", action="store_true", help="ours, dense and torch alone")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no problem after that")
    parser.add_argument("--out", type=Path, help="JSON lines, written as they come")
    given = parser.parse_args()
    gpu = jax.default_backend() == "gpu"
    how = How(given.samples, not given.no_variants, not given.no_torch)
    dtypes = given.dtype or (["bfloat16", "float32"] if gpu else ["float32"])
    console, begin, fault = Console(width=150), time.monotonic(), False
    console.print("\n".join(provenance(command_line()).lines()), highlight=False)
    if given.out:
        given.out.write_bytes(b"")
    for op in given.op or OPS:
        for dtype in dtypes:
            problems = draw(op, given.seed, given.count, dtype, GPU if gpu else CPU)
            found: list[Seen] = []
            for problem in track(problems[given.skip :], f"{op} {dtype}", console=console):
                if time.monotonic() - begin > given.seconds:
                    break
                found.append(see(problem, how))
                if given.out:
                    with given.out.open("ab") as file:
                        file.write(msgspec.json.encode(found[-1]) + b"\n")
            show(console, f"{op} {dtype}", found)
            fault |= any(one.wrong for one in found)
    return fault


def show(console: Console, title: str, found: list[Seen]) -> None:
    """The summary, and the worst ten."""
    table = Table(title=f"{title}, unseen problems", show_header=False)
    for what, figure in summary(found):
        table.add_row(what, figure)
    console.print(table)
    for one in worst(found):
        over = f"{one.over_dense:.2f}x dense" if one.over_dense else "no figure"
        regret = f", regret {one.regret:.0%}" if one.regret is not None else ""
        console.print(f"{one.problem}: {over}{regret}; dense {one.dense}, ours {one.ours} us")
        console.print("\n".join([*one.wrong, *one.why.splitlines()[:3]]), style="dim")


if __name__ == "__main__":
    raise SystemExit(main())
