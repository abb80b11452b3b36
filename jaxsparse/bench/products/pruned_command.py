"""`jaxsparse bench pruned_matmul | pruned_conv`: their command lines."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from jaxsparse.bench.products import pruned
from jaxsparse.bench.products.measured import Dtypes, each, measured
from jaxsparse.bench.products.run import Comparison, ProductPlan
from jaxsparse.testing.pruned_cases import PRUNED_CONV_CASES, PRUNED_MATMUL_CASES

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", help="A case or a tag (cpu, gpu, quick). Repeatable."),
]
Sparsity = Annotated[
    list[float] | None, typer.Option(help="Share of the weights pruned. Repeatable.")
]
Executors = Annotated[
    list[str] | None, typer.Option("--variant", help="An executor beside the choice. Repeatable.")
]


@measured(calls=10)
def pruned_matmul(
    plan: ProductPlan,
    quick: bool,
    case_names: Cases = None,
    dtype: Dtypes = None,
    sparsity: Sparsity = None,
    variant: Executors = None,
) -> Iterator[Comparison]:
    """Time products with frozen weights beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    return _found(PRUNED_MATMUL_CASES, case_names, dtype, plan, sparsity, variant, quick)


@measured(calls=10, rivals=False)
def pruned_conv(
    plan: ProductPlan,
    quick: bool,
    case_names: Cases = None,
    dtype: Dtypes = None,
    sparsity: Sparsity = None,
    variant: Executors = None,
) -> Iterator[Comparison]:
    """Time convolutions with frozen weights beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    return _found(PRUNED_CONV_CASES, case_names, dtype, plan, sparsity, variant, quick)


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
    for case, one in each(table, names, dtypes, quick):
        yield from pruned.comparisons(case, one, plan, shares, executors or ())
