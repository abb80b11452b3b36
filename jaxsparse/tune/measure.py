"""Every variant of one site on masks of several densities, in chains of calls, each output
checked.
"""

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.chain import ChainSide, Pool, tolerance
from jaxsparse.bench.measure.timing import interleave
from jaxsparse.bits import pack_mask
from jaxsparse.index import TileIndex, tile_index
from jaxsparse.select.sites import Site
from jaxsparse.tune.costs import Costs

ROTATE_BYTES = 32e6
MAX_SETS = 4


def index_of(site: Site) -> TileIndex:
    """The shapes of the site's index.

    Raises:
        ValueError: when the op has none.
    """
    found = [o for o in site.operands if isinstance(o, TileIndex)]
    if not found:
        raise ValueError(f"{site.problem.op}: the tuner needs an op with one TileIndex")
    return found[0]


def measure_site(
    site: Site,
    masks: Sequence[np.ndarray],
    *,
    calls: int,
    samples: int,
    on_step: Callable[[str], None],
) -> Costs:
    """Time the site's variants, "dense" among them, on each mask.

    Args:
        site: its first operand is the input that differs from call to call.
        masks: bool[B, Ho, Wo] of the site's index.
        calls: in a chain.
        samples: timed rounds.
        on_step: called with a variant's name after each of its turns.

    Warns:
        RuntimeWarning: for each variant that failed or gave a wrong result; it costs None.
    """
    index = index_of(site)
    draw, rest = make_operands(site)
    arrays = [jnp.asarray(m) for m in masks]
    indices = [_build(index, m) for m in arrays]
    dense = site.branches.get("dense", next(iter(site.branches.values())))

    def want(x: jax.Array, mask: jax.Array, operands: Any) -> jax.Array:
        return dense(*_with_input(x, operands))

    bytes_each = math.prod(site.operands[0].shape) * site.operands[0].dtype.itemsize
    sets = min(max(math.ceil(ROTATE_BYTES / max(bytes_each * calls, 1)), 1), MAX_SETS)
    pool = Pool(draw, want, _with_index(rest, indices[0]), [arrays[0]] * calls, sets=sets)
    sides, failures = _sides(site.branches, pool)
    bound = tolerance(site.problem.dtype, site.problem.platform)
    rows, densities = [], []
    for mask, built in zip(arrays, indices, strict=True):
        pool.load(_with_index(rest, built), [mask] * calls)
        took = interleave(sides, samples=samples, on_step=on_step)
        row: list[float | None] = []
        for name in site.branches:
            why = failures.get(name) or took[name].failure
            if not why and took[name].error > bound:
                why = f"wrong by {took[name].error:.2g}; {bound:g} is allowed"
            if why:
                warnings.warn(
                    f"{site.problem.op}, variant {name}: {why}", RuntimeWarning, stacklevel=2
                )
            row.append(None if why else took[name].wall_median)
        rows.append(tuple(row))
        densities.append(float(built.tile_density()))
    return Costs(tuple(site.branches), tuple(densities), tuple(rows))


def _sides(
    branches: Mapping[str, Callable[..., Any]], pool: Pool
) -> tuple[list[ChainSide], dict[str, str]]:
    sides, failures = [], {}
    for name, branch in branches.items():

        def call(i: int, x: jax.Array, operands: Any, run: Callable[..., Any] = branch) -> Any:
            return run(*_with_input(x, operands))

        try:
            sides.append(ChainSide(name, pool, call))
        except Exception as error:  # one variant's failure is a result; the others are still timed
            failures[name] = f"{type(error).__name__}: {error}"
    return sides, failures


def make_operands(site: Site) -> tuple[Callable[[int], jax.Array], list[Any]]:
    """A way to draw inputs, and the site's other operands: noise of unit gain, input masks full,
    other integers 0.
    """
    first, *others = site.operands
    rng = np.random.default_rng(0)

    def fill(shape: Any) -> jax.Array:
        if jnp.issubdtype(shape.dtype, jnp.floating):
            gain = 1 / math.sqrt(max(math.prod(shape.shape[:-1]), 1))
            noise = rng.standard_normal(shape.shape, np.float32) * np.float32(gain)
            return jnp.asarray(noise).astype(shape.dtype)
        full = first.ndim == 4 and shape.shape[:2] == first.shape[:2] and shape.dtype == jnp.uint32
        return (
            pack_mask(jnp.ones(first.shape[:3], bool))
            if full
            else jnp.zeros(shape.shape, shape.dtype)
        )

    def draw(seed: int) -> jax.Array:
        noise = np.random.default_rng(seed).standard_normal(first.shape, np.float32)
        return jnp.asarray(noise).astype(first.dtype)

    return draw, [o if isinstance(o, TileIndex) else jax.tree.map(fill, o) for o in others]


def _with_index(operands: Sequence[Any], built: TileIndex) -> list[Any]:
    return [built if isinstance(o, TileIndex) else o for o in operands]


def _with_input(x: jax.Array, operands: Sequence[Any]) -> tuple[Any, ...]:
    return x, *operands


def _build(like: TileIndex, mask: jax.Array) -> TileIndex:
    build = functools.partial(tile_index, tile=like.tile, capacity=like.capacity, align=like.align)
    return jax.jit(build)(mask)
