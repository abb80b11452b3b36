"""The shipped table of masked_conv, from measured times, and how good its choice is.

    python benchmarks/masked_conv/rates.py [sweep.json ...] [--write TABLE.json] [--worst N]

Reads what sweep.py wrote; without files the ladders of the shipped table follow its rates
again. The choice is judged on masks that the rates were not fitted to: one
half of the masks by rates of the other half, both ways.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sweep import KNOWN

from jaxsparse.select.config import config
from jaxsparse.select.masked_conv.chooser import candidates
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Entry, TuningTable, shipped
from jaxsparse.testing.cases import ConvCase
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.rates import Regret, entries, fit, judge
from jaxsparse.tune.sweep import Sample, problem_of

DEVICE = "NVIDIA H200"
NEAR = 1.05
MEASURED = (
    "benchmarks/masked_conv/sweep.py: GPU time of every variant on five kinds of masks; ladders "
    "follow the rates (benchmarks/masked_conv/rates.py)"
)


def read(files: Sequence[Path]) -> list[Sample]:
    """The samples of all files, a JSON object a line."""
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=Sample) for line in lines]


def with_rates(table: TuningTable, samples: Sequence[Sample]) -> TuningTable:
    """The table with rates fitted to the samples, in place of those of the same dtypes and shapes
    (what a call compares are rates of one shape); float16 takes those of bfloat16.
    """
    rates = fit(samples, table.processors)
    half = [msgspec.structs.replace(r, dtype="float16") for r in rates if r.dtype == "bfloat16"]
    new = {(r.dtype, r.shape) for r in (*rates, *half)}
    kept = [r for r in table.rates if (r.dtype, r.shape) not in new]
    return msgspec.structs.replace(table, rates=(*rates, *half, *kept))


def with_entries(table: TuningTable, samples: Sequence[Sample]) -> TuningTable:
    """The table with entries of the problems that were measured, dense among their variants, in
    place of those of the same problems; float16 takes those of bfloat16.
    """
    dense = {(s.case, s.dtype) for s in samples if s.variant == DENSE}
    found = entries(s for s in samples if (s.case, s.dtype) in dense)
    half = [msgspec.structs.replace(e, dtype="float16") for e in found if e.dtype == "bfloat16"]
    new = {_key(e): e for e in (*found, *half)}
    old = [e for e in table.entries if _key(e) not in new]
    return msgspec.structs.replace(table, entries=(*new.values(), *old))


def _key(entry: Entry) -> tuple[Any, ...]:
    return entry.op, entry.dtype, *sorted(entry.features.items())


def with_ladders(table: TuningTable) -> TuningTable:
    """The table with the ladders that its rates imply: of at least four variants where as many
    gather, and XLA's dense among them, each where it costs least.
    """
    known: dict[tuple[float, ...], ConvCase] = {
        (math.prod(c.mask_shape), *_shape(c)): c for c in KNOWN
    }
    found = []
    for entry in table.entries:
        f = entry.features
        case = known.get(tuple(f[n] for n in ("pixels", "taps", "channels", "outputs", "stride")))
        dtype = "bfloat16" if entry.dtype == "float16" else entry.dtype
        costs = None if case is None else modelled(case, dtype, table)
        if costs is not None and len(costs.variants) > 1:
            problem = Problem(entry.op, "cuda", entry.dtype, f, int(f["pixels"]))
            ladder = costs.entry(problem, len(costs.variants), least=4).ladder
            entry = msgspec.structs.replace(entry, ladder=ladder)
        found.append(entry)
    return msgspec.structs.replace(table, entries=tuple(found))


def _shape(case: ConvCase) -> tuple[int, ...]:
    window, stride = case.kernel_shape[:2], case.geometry.strides
    return math.prod(window), case.kernel_shape[2], case.outputs, math.prod(stride)


def modelled(case: ConvCase, dtype: str, table: TuningTable, levels: int = 24) -> Costs | None:
    """What the rates say of the variants that gather and of dense, by density of pixels."""
    if dtype not in {r.dtype for r in table.rates}:
        return None
    with config(tuning=table):
        every = candidates(problem_of(case, dtype))
    held = {n: c for n, c in every.costs.items() if c.list == 0 or n == DENSE}
    density = [(i + 0.5) / levels for i in range(levels)]
    rows = [[1e-6 * c.at(round(d * every.tiles[0]), 0) for c in held.values()] for d in density]
    return Costs(tuple(held), tuple(density), tuple(map(tuple, rows)))


def held_out(samples: Sequence[Sample], table: TuningTable) -> list[Regret]:
    """Regrets of each half of the masks under rates of the other half."""
    masks = sorted({(s.case, s.dtype, s.seed) for s in samples})
    first = set(masks[::2])
    halves = [[s for s in samples if ((s.case, s.dtype, s.seed) in first) == one] for one in (0, 1)]
    known = KNOWN
    pairs = (halves, halves[::-1])
    return [r for seen, new in pairs for r in judge(new, with_rates(table, seen), known)]


def lines(found: Sequence[Regret], name: str) -> list[str]:
    """A table of regrets, a case a row."""
    out = [f"| {name} | masks | within 5 % | median | worst | chosen |", "|---" * 6 + "|"]
    by_case = sorted(found, key=lambda r: r.case)
    for case, group in itertools.groupby(by_case, lambda r: r.case):
        out.append(_line(case, list(group)))
    return [*out, _line("all", list(found))]


def _line(name: str, found: Sequence[Regret]) -> str:
    ratios = np.array([r.ratio for r in found])
    kinds = ", ".join(sorted({r.chosen for r in found})) if name != "all" else ""
    return (
        f"| {name} | {len(found)} | {np.mean(ratios <= NEAR):.0%} | {np.median(ratios):.3f} "
        f"| {ratios.max():.3f} | {kinds} |"
    )


def main() -> int:
    """Fit, judge, write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--write", type=Path, help="the table, with its rates replaced")
    parser.add_argument("--worst", type=int, default=0, help="list the worst choices")
    given = parser.parse_args()
    samples = read(given.files)
    table = shipped()[DEVICE]
    for dtype in sorted({s.dtype for s in samples}):
        part = [s for s in samples if s.dtype == dtype]
        found = held_out(part, table)
        print("\n".join(lines(found, f"{dtype}, masks not fitted to")))
        for r in sorted(found, key=lambda r: -r.ratio)[: given.worst]:
            print(
                f"  {r.ratio:.3f} {r.case} {r.mask} {r.density:.3f}: {r.chosen} {r.us:.1f}, "
                f"best {r.best} {r.best_us:.1f}"
            )
        known = KNOWN
        for name, each in (("before", table), ("fitted to all", with_rates(table, part))):
            print(_line(f"{dtype}, {name}", judge(part, each, known)))
    if given.write:
        table = with_entries(with_rates(table, samples), samples)
        table = msgspec.structs.replace(with_ladders(table), measured=MEASURED)
        given.write.write_bytes(table.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
