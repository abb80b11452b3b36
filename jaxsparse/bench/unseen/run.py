"""One drawn problem: ours, as a user calls it, beside dense, torch and every variant."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import msgspec

from jaxsparse.bench.masked_conv import run as conv_run
from jaxsparse.bench.products import grouped_matmul as grouped
from jaxsparse.bench.products import masked_matmul as masked
from jaxsparse.bench.products import pruned
from jaxsparse.bench.products import sparse_attention as attention
from jaxsparse.bench.products.run import Comparison, ProductPlan, element_type, measure
from jaxsparse.bench.report.rows import DENSE
from jaxsparse.bench.unseen.draw import Drawn
from jaxsparse.ops import masked_conv
from jaxsparse.select import config
from jaxsparse.select.explain import explain
from jaxsparse.select.sites import watch
from jaxsparse.testing import ConvCase, make_masks
from jaxsparse.testing.attention_cases import AttentionCase
from jaxsparse.testing.product_cases import GroupedCase, MatmulCase

VARIANT = "variant "
MEGABYTES = 64.0  # of distinct inputs, before one comes again


class Seen(msgspec.Struct, frozen=True):
    """What was measured for one problem, in microseconds a call of wall time.

    Attributes:
        problem, op, dtype, mask, density, number: of the draw.
        dense: XLA's dense operation (of the same FLOPs for a grouped product).
        torch: cuDNN or torch's grouped product; None where it is not.
        ours: the op as a user calls it, its index included.
        variants: name -> time of that variant alone.
        expected: name -> what the choice expected of it, where it expected something.
        wrong: sides whose result was wrong, or that failed, with the reason.
        why: what `js.explain` says of the call.
    """

    problem: str
    op: str
    dtype: str
    mask: str
    density: float
    number: int
    dense: float | None
    torch: float | None
    ours: float | None
    variants: dict[str, float]
    expected: dict[str, float]
    wrong: list[str]
    why: str

    @property
    def over_dense(self) -> float | None:
        """How many times faster than dense."""
        return self.dense / self.ours if self.dense and self.ours else None

    @property
    def over_torch(self) -> float | None:
        """How many times faster than torch."""
        return self.torch / self.ours if self.torch and self.ours else None

    @property
    def regret(self) -> float | None:
        """Ours over the fastest of ours and all variants, less one."""
        if not self.variants or self.ours is None:
            return None
        return self.ours / min(self.ours, *self.variants.values()) - 1


@dataclasses.dataclass(frozen=True)
class How:
    """How to measure: rounds, whether each variant is timed, whether torch is, how long a chain is
    to take, in milliseconds (0: its calls once), and how many sides compile at once.
    """

    samples: int = 5
    variants: bool = True
    torch: bool = True
    chain_ms: float = 0.0
    threads: int = 1


def see(drawn: Drawn, how: How) -> Seen:
    """Measure one problem. A side that fails or is wrong is reported, never raised."""
    if isinstance(drawn.case, ConvCase):
        return _see_conv(drawn, drawn.case, how)
    return _see_product(drawn, how)


#: Multiply-adds and bytes a microsecond, and microseconds of a call, by which the length of a chain
#: is guessed: a large GPU's.
USUAL_MACS, USUAL_BYTES, USUAL_START = 2e8, 2e6, 10.0
#: The most rounds of a chain.
MOST_ROUNDS = 256


def calls_for(x_elements: int) -> int:
    """Different calls of a chain: ten, fewer where their inputs are more than half a gigabyte."""
    return max(3, min(10, 2**28 // max(x_elements, 1)))


def rounds_for(calls: int, macs: float, moved: float, chain_ms: float) -> int:
    """How often a chain does its calls, so that it takes about so many milliseconds where a dense
    call takes what a large GPU needs for its multiply-adds or bytes.
    """
    us = USUAL_START + max(macs / USUAL_MACS, moved / USUAL_BYTES)
    return max(1, min(MOST_ROUNDS, round(1e3 * chain_ms / (calls * us))))


def _see_conv(drawn: Drawn, case: ConvCase, how: How) -> Seen:
    elements = math.prod(case.x_shape)
    calls = calls_for(elements)
    moved = 2.0 * (elements + math.prod(case.mask_shape) * case.outputs)
    plan = conv_run.Plan(
        densities=(drawn.density,),
        selections=(),
        as_called=True,
        variants=None if how.variants else (),
        index_every=1,
        calls=calls,
        repeats=rounds_for(calls, case.macs, moved, how.chain_ms),
        threads=how.threads,
        samples=how.samples,
        rotate_mb=MEGABYTES,
        torch=how.torch,
    )
    (rows,) = conv_run.measure(case, drawn.mask, drawn.dtype, plan, lambda side: None)
    kind = element_type(drawn.dtype)
    mask = jnp.asarray(make_masks(drawn.mask, case.mask_shape, drawn.density)[0])
    x, kernel = (jnp.asarray(case.array(name)).astype(kind) for name in ("x", "kernel"))
    call = functools.partial(masked_conv, **case.options)
    told = explain(call, x, kernel, mask).calls[0]
    expected: dict[str, float] = {}
    if told.choice is not None and told.lists:
        expected = {c.name: c.at(*told.lists[0]) for c in told.choice.candidates}
    return _seen(drawn, rows, conv_run.MASK_SIDE, "torch", expected, str(told))


def _see_product(drawn: Drawn, how: How) -> Seen:
    case = drawn.case
    if isinstance(case, ConvCase):
        raise TypeError(f"{drawn} is a convolution")
    elements, macs, moved = _size(case)
    calls = calls_for(elements)
    plan = ProductPlan(
        calls=calls,
        repeats=rounds_for(calls, macs, moved, how.chain_ms),
        samples=how.samples,
        rotate_mb=MEGABYTES,
        rivals=how.torch,
        threads=how.threads,
    )
    sparsity = (1 - drawn.density,)
    if isinstance(case, GroupedCase):
        (found,) = grouped.comparisons(case, drawn.dtype, plan, ("forward",))
        # XLA's own grouped product is a loop over the experts, milliseconds long: not timed here.
        found = dataclasses.replace(
            found,
            ways={k: way for k, way in found.ways.items() if k != grouped.RAGGED},
            against="jaxsparse",
        )
        dense, torch = grouped.DENSE, "torch grouped"
    elif isinstance(case, MatmulCase):
        (found,) = masked.comparisons(case, drawn.dtype, plan, sparsity)
        found = dataclasses.replace(found, rivals={})
        dense, torch = masked.DENSE, ""
    elif isinstance(case, AttentionCase):
        (found,) = attention.comparisons(case, drawn.dtype, plan, sparsity, ("forward",))
        dense, torch = attention.DENSE, ""
    else:
        quiet = dataclasses.replace(plan, rivals=False)
        (found,) = pruned.comparisons(case, drawn.dtype, quiet, sparsity)
        dense, torch = pruned.DENSE, ""
    ours = found.ways["jaxsparse"]
    x = found.draw(0)
    if how.variants:
        named = {VARIANT + name: _demanded(ours, name) for name in _variants(found, ours, x)}
        found = dataclasses.replace(found, ways={**found.ways, **named})
    rows = measure(found, plan, lambda side: None)
    told = explain(lambda x, operands: ours(0, x, operands), x, found.operands)
    return _seen(drawn, rows, "jaxsparse", torch, {}, str(told), dense)


def _size(case: Any) -> tuple[int, float, float]:
    """Elements of the first operand; multiply-adds of the dense product, and bytes of its operands
    and result in 16 bits, about: of a frozen weight those of its input.
    """
    if isinstance(case, GroupedCase):
        sides = case.depth + case.outputs
        weights = min(case.experts, case.tokens) * case.depth * case.outputs
        macs = float(case.tokens * case.depth * case.outputs)
        return case.tokens * case.depth, macs, 2.0 * (case.tokens * sides + weights)
    if isinstance(case, MatmulCase):
        m, k, n = case.m, case.k, case.n
        return m * k, float(m * k * n), 2.0 * (m * k + k * n + m * n)
    if isinstance(case, AttentionCase):
        elements = case.batch * case.tokens * case.heads * case.depth
        return elements, 2.0 * elements * case.keys, 4.0 * elements
    elements = math.prod(case.x_shape)
    return elements, 0.0, 4.0 * elements


def _variants(found: Comparison, ours: Callable[..., Any], x: jax.Array) -> list[str]:
    """The variants that take the problem on this platform."""
    sites = watch(lambda x, operands: ours(0, x, operands), x, found.operands)
    platform = conv_run.platform_name()
    return next((list(s.branches) for s in sites if s.problem.platform == platform), [])


def _demanded(ours: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(i: int, x: jax.Array, operands: Any) -> Any:
        with config(variant=name):
            return ours(i, x, operands)

    return call


def _seen(
    drawn: Drawn,
    rows: Iterable[Any],
    ours: str,
    torch: str,
    expected: Mapping[str, float],
    why: str,
    dense: str = DENSE,
) -> Seen:
    right: dict[str, float] = {}
    wrong: list[str] = []
    for row in rows:
        if row.correct and row.wall_us is not None:
            right[row.side] = row.wall_us
        elif row.side != torch:  # torch that cannot run the problem is not our fault
            wrong.append(f"{row.side}: {row.note or f'error {row.error}'}")
    return Seen(
        problem=str(drawn),
        op=drawn.op,
        dtype=drawn.dtype,
        mask=drawn.mask,
        density=drawn.density,
        number=drawn.number,
        dense=right.get(dense),
        torch=right.get(torch),
        ours=right.get(ours),
        variants={k[len(VARIANT) :]: v for k, v in right.items() if k.startswith(VARIANT)},
        expected=dict(expected),
        wrong=wrong,
        why=why,
    )
