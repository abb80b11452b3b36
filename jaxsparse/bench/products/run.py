"""Matrix products side by side: what the benchmarks of grouped and masked products and of mixtures
of experts share.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.chain import Call, ChainSide, Pool, compile_all, tolerance
from jaxsparse.bench.measure.dtypes import check_dtype
from jaxsparse.bench.measure.timing import Samples, Side, columns, interleave
from jaxsparse.bench.products.rows import ProductRow

MEGABYTE = 1e6


@dataclasses.dataclass(frozen=True)
class ProductPlan:
    """How to measure: `calls` of a chain, timed rounds, `rotate_mb` of distinct inputs at least
    before one comes again (within `max_sets` chains), device times too, rivals of other packages. A
    chain does its calls `repeats` times; so many `threads` compile at once. `told`: a masked
    product is given the share that its mask keeps.
    """

    calls: int = 10
    repeats: int = 1
    samples: int = 15
    rotate_mb: float = 64.0
    max_sets: int = 8
    device: bool = False
    rivals: bool = True
    threads: int = 1
    told: bool = False


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One table: the ways of doing one thing.

    Attributes:
        op, case, what, dtype: its names; `dtype` is one of
            `measure.dtypes.NAMES`.
        draw: draw(seed) -> one input array.
        reference: (x, own, operands) -> what a call must give, in float32.
        operands: what all calls share.
        own: what each call of a chain has of its own.
        ways: side -> (call number, x, operands) -> what it gives.
        rivals: side -> what makes it on a pool: other packages.
        beside: ways of doing something else, timed in the same rounds and checked by themselves
            (the dense product of the same FLOPs).
        against: the side that the others are measured against; "" is the first of `ways`.
    """

    op: str
    case: str
    what: str
    dtype: str
    draw: Callable[[int], jax.Array]
    reference: Callable[[jax.Array, Any, Any], Any]
    operands: Any
    own: Sequence[Any]
    ways: Mapping[str, Call]
    rivals: Mapping[str, Callable[[Pool], Side]] = dataclasses.field(default_factory=dict)
    beside: "Comparison | None" = None
    against: str = ""


def element_type(dtype: str) -> np.dtype:
    """The arrays' dtype: "highest" is float32 multiplied in float32.

    Raises:
        ValueError: for a dtype that does not exist.
    """
    check_dtype(dtype)
    return jnp.dtype("float32" if dtype == "highest" else dtype)


def precision(dtype: str) -> jax.lax.Precision | None:
    """What the products take as `precision`."""
    return jax.lax.Precision.HIGHEST if dtype == "highest" else None


def platform_name() -> str:
    """ "cpu" or "cuda", as the variant tables call it."""
    return {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())


def measure(
    comparison: Comparison, plan: ProductPlan, on_step: Callable[[str], None] = print
) -> list[ProductRow]:
    """The rows of one comparison; a side that cannot be made or run is a row that says why.

    Args:
        comparison: what.
        plan: how.
        on_step: called with a side's name after each of its turns.
    """
    makers: dict[str, Callable[[], Side]] = {}
    pools = []
    for part in (comparison, *([comparison.beside] if comparison.beside else [])):
        pool = make_pool(part, plan)
        pools.append(pool)
        for name, call in part.ways.items():
            makers[name] = functools.partial(ChainSide, name, pool, call, late=True)
        for name, make in part.rivals.items() if plan.rivals else ():
            makers[name] = functools.partial(make, pool)
    sides: list[Side] = []
    found: dict[str, Samples] = {}
    for name, make in makers.items():
        try:
            sides.append(make())
        except Exception as error:  # one side's failure is a result; the others still run
            found[name] = Samples(failure=f"{type(error).__name__}: {error}")
    failed = compile_all(sides, plan.threads)
    found |= {name: Samples(failure=why) for name, why in failed.items()}
    sides = [side for side in sides if side.name not in failed]
    memory = {side.name: _temporary(side) for side in sides}
    found |= interleave(sides, samples=plan.samples, device=plan.device, on_step=on_step)
    return [_row(comparison, pools[0], name, found, memory.get(name)) for name in makers]


def make_pool(comparison: Comparison, plan: ProductPlan) -> Pool:
    """The inputs of a comparison, as many sets as the plan asks for."""
    x = jax.eval_shape(functools.partial(comparison.draw, 0))
    size = len(comparison.own) * math.prod(x.shape) * x.dtype.itemsize
    least = 3 if plan.device else 1
    sets = min(max(math.ceil(plan.rotate_mb * MEGABYTE / max(size, 1)), least), plan.max_sets)
    return Pool(
        comparison.draw,
        comparison.reference,
        comparison.operands,
        comparison.own,
        sets=sets,
        repeats=plan.repeats,
    )


def _temporary(side: Side) -> float | None:
    """Megabytes of a chain's temporaries, which one call after the other uses."""
    analysis = side.compiled.memory_analysis() if isinstance(side, ChainSide) else None
    return None if analysis is None else analysis.temp_size_in_bytes / MEGABYTE


def _row(
    comparison: Comparison,
    pool: Pool,
    name: str,
    found: Mapping[str, Samples],
    memory: float | None,
) -> ProductRow:
    against = comparison.against or next(iter(comparison.ways))
    bound = tolerance(comparison.dtype, platform_name())
    return ProductRow(
        op=comparison.op,
        case=comparison.case,
        what=comparison.what,
        dtype=comparison.dtype,
        side=name,
        against=against,
        calls=pool.calls * pool.repeats,
        rotated_mb=pool.rotated_bytes / MEGABYTE,
        temporary_mb=memory,
        **columns(found[name], found[against], bound),
    )


def check_whats(whats: Sequence[str], known: Sequence[str]) -> None:
    """The products or passes that are asked for are some of those known.

    Raises:
        ValueError: naming the first that is not.
    """
    unknown = [what for what in whats if what not in known]
    if unknown:
        raise ValueError(f"what={unknown[0]!r} is not one of {', '.join(known)}")


def normal(shape: tuple[int, ...], dtype: np.dtype, seed: int, scale: float = 1.0) -> jax.Array:
    """Normal noise times `scale`, drawn on the device in float32 and rounded."""
    return _noise(shape, dtype, jax.random.key(seed), jnp.float32(scale))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _noise(shape: tuple[int, ...], dtype: np.dtype, key: jax.Array, scale: jax.Array) -> jax.Array:
    return (jax.random.normal(key, shape, jnp.float32) * scale).astype(dtype)
