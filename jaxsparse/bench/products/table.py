"""What the benchmarks of matrix products share: measure cases in every dtype, print, and write the
tables of benchmarks/results/products/.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from jaxsparse.bench.products.measured import default_tag, make_plan, run
from jaxsparse.bench.products.rows import show_products
from jaxsparse.bench.products.run import Comparison, ProductPlan
from jaxsparse.bench.report.provenance import device_slug
from jaxsparse.testing.product_cases import find

MEASURED = {"cpu": ["float32"], "gpu": ["bfloat16", "float32"]}
Maker = Callable[[Any, str, ProductPlan], Iterator[Comparison]]


def main(op: str, doc: str, table: Any, make: Maker, calls: int = 10) -> int:
    """The command line of benchmarks/<op>.py; 1 when an output was wrong.

    Args:
        op: names the files.
        doc: of the benchmark.
        table: name -> case.
        make: (case, dtype, plan) -> comparisons.
        calls: of a chain.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--case", action="append", help="a case or a tag; default: the platform's")
    parser.add_argument("--dtype", action="append", help="default: the platform's")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--calls", type=int, default=calls)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/products"))
    given = parser.parse_args()
    plan = make_plan(given.calls, given.samples, None, True, quick=False)
    cases = find(table, given.case or [default_tag(quick=False)])
    dtypes = given.dtype or MEASURED[jax.default_backend()]
    report = run((c for case in cases for d in dtypes for c in make(case, d, plan)), plan)
    show_products(report, Console())
    device = device_slug(report.provenance.device)
    given.out.mkdir(parents=True, exist_ok=True)
    for suffix, form in ((".md", "markdown"), (".json", "json")):
        report.write(given.out / f"{op}_{device}{suffix}", form)
    return 0 if report.correct else 1
