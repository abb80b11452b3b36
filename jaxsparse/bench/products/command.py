"""`jaxsparse bench grouped_matmul | masked_matmul | moe | sparse_attention | sparse_ffn`:
command lines.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from jaxsparse.bench.products import grouped_matmul as grouped
from jaxsparse.bench.products import masked_matmul as masked
from jaxsparse.bench.products import moe as mixture
from jaxsparse.bench.products import sparse_attention as attention
from jaxsparse.bench.products import sparse_ffn as ffn
from jaxsparse.bench.products.measured import Dtypes, each, measured
from jaxsparse.bench.products.run import Comparison, ProductPlan
from jaxsparse.testing.attention_cases import ATTENTION_CASES
from jaxsparse.testing.ffn_cases import FFN_CASES
from jaxsparse.testing.product_cases import GROUPED_CASES, MATMUL_CASES, MOE_CASES, Named

Shares = Annotated[list[float] | None, typer.Option(help="Share of the blocks unset. Repeatable.")]


def _case_option(table: Mapping[str, Named]) -> Any:
    """`--case`, with every name and tag of a table of cases."""
    tags = ", ".join(sorted(set().union(*(case.tags for case in table.values()))))
    text = f"A case, or a tag: {tags}. Repeatable; default: cpu or gpu. Cases: {', '.join(table)}."
    return typer.Option("--case", help=text)


GroupedNames = Annotated[list[str] | None, _case_option(GROUPED_CASES)]
MatmulNames = Annotated[list[str] | None, _case_option(MATMUL_CASES)]
MoeNames = Annotated[list[str] | None, _case_option(MOE_CASES)]
AttentionNames = Annotated[list[str] | None, _case_option(ATTENTION_CASES)]
FfnNames = Annotated[list[str] | None, _case_option(FFN_CASES)]


@measured(calls=10)
def grouped_matmul(
    plan: ProductPlan,
    quick: bool,
    case_names: GroupedNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(grouped.WHATS)}. Repeatable; default: all."),
    ] = None,
) -> Iterator[Comparison]:
    """Time grouped products beside ragged_dot and others.

    Every output is checked; exit status 1 when one is wrong.
    """
    for case, one in each(GROUPED_CASES, case_names, dtype, quick):
        yield from grouped.comparisons(case, one, plan, what or grouped.WHATS)


@measured(calls=10)
def masked_matmul(
    plan: ProductPlan,
    quick: bool,
    case_names: MatmulNames = None,
    dtype: Dtypes = None,
    sparsity: Shares = None,
) -> Iterator[Comparison]:
    """Time masked products beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    shares = sparsity or ((0.9,) if quick else masked.SPARSITIES)
    for case, one in each(MATMUL_CASES, case_names, dtype, quick):
        yield from masked.comparisons(case, one, plan, shares)


@measured(calls=1, rivals=True)
def moe(
    plan: ProductPlan,
    quick: bool,
    case_names: MoeNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(mixture.WHATS)}. Repeatable; default: all."),
    ] = None,
) -> Iterator[Comparison]:
    """Time mixtures of experts beside others.

    Every output is checked; exit status 1 when one is wrong.
    """
    for case, one in each(MOE_CASES, case_names, dtype, quick):
        yield from mixture.comparisons(case, one, plan, what or mixture.WHATS)


@measured(calls=1, rivals=True)
def sparse_attention(
    plan: ProductPlan,
    quick: bool,
    case_names: AttentionNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(attention.WHATS)}. Repeatable; default: all."),
    ] = None,
    sparsity: Shares = None,
) -> Iterator[Comparison]:
    """Time attention under masks of blocks beside jax.nn's.

    Every output is checked; exit status 1 when one is wrong.
    """
    shares = sparsity or ((0.9,) if quick else attention.SPARSITIES)
    for case, one in each(ATTENTION_CASES, case_names, dtype, quick):
        yield from attention.comparisons(case, one, plan, shares, what or attention.WHATS)


@measured(calls=1, rivals=True)
def sparse_ffn(
    plan: ProductPlan,
    quick: bool,
    case_names: FfnNames = None,
    dtype: Dtypes = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(ffn.WHATS)}. Repeatable; default: forward."),
    ] = None,
    zeros: Annotated[
        list[float] | None, typer.Option(help="Share of the activations that are zero. Repeatable.")
    ] = None,
) -> Iterator[Comparison]:
    """Time feed-forward networks whose activations are mostly zero beside dense ones.

    Every output is checked; exit status 1 when one is wrong.
    """
    shares = zeros or ((0.9,) if quick else ffn.ZEROS)
    for case, one in each(FFN_CASES, case_names, dtype, quick):
        yield from ffn.comparisons(case, one, plan, shares, what or ffn.WHATS[:1])
