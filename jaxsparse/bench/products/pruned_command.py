"""`jaxsparse bench pruned_matmul | pruned_conv`: their command lines."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from jaxsparse.bench.products import pruned
from jaxsparse.bench.products.command import (
    NOISY,
    Calls,
    Cases,
    CsvFile,
    Device,
    Dtypes,
    JsonFile,
    MarkdownFile,
    Quick,
    Rivals,
    Samples,
    default_tag,
    finish,
    make_plan,
)
from jaxsparse.bench.products.run import Comparison, ProductPlan
from jaxsparse.testing.product_cases import find
from jaxsparse.testing.pruned_cases import PRUNED_CONV_CASES, PRUNED_MATMUL_CASES

Sparsity = Annotated[
    list[float] | None, typer.Option(help="Share of the weights pruned. Repeatable.")
]
Executors = Annotated[
    list[str] | None, typer.Option("--variant", help="An executor beside the choice. Repeatable.")
]


def pruned_matmul(
    case_names: Cases = None,
    dtype: Dtypes = None,
    sparsity: Sparsity = None,
    variant: Executors = None,
    calls: Calls = 10,
    samples: Samples = 15,
    device: Device = None,
    rivals: Rivals = True,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time products with frozen weights beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, rivals, quick)
    found = _found(PRUNED_MATMUL_CASES, case_names, dtype, plan, sparsity, variant, quick)
    finish(found, plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def pruned_conv(
    case_names: Cases = None,
    dtype: Dtypes = None,
    sparsity: Sparsity = None,
    variant: Executors = None,
    calls: Calls = 10,
    samples: Samples = 15,
    device: Device = None,
    quick: Quick = False,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time convolutions with frozen weights beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    plan = make_plan(calls, samples, device, False, quick)
    found = _found(PRUNED_CONV_CASES, case_names, dtype, plan, sparsity, variant, quick)
    finish(found, plan, json_file, csv_file, markdown_file, NOISY if quick else "")


def _found(
    table: Mapping[str, Any],
    names: list[str] | None,
    dtypes: list[str] | None,
    plan: ProductPlan,
    sparsity: list[float] | None,
    executors: list[str] | None,
    quick: bool,
) -> Iterator[Comparison]:
    shares = sparsity or ((0.9,) if quick else pruned.SPARSITIES)
    for case in find(table, names or [default_tag(quick)]):
        for one in dtypes or ["float32"]:
            yield from pruned.comparisons(case, one, plan, shares, executors or ())
