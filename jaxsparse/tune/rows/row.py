"""The rows of a site's costs: what its operands are on each."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bits import pack_mask
from jaxsparse.index import TileIndex, tile_index
from jaxsparse.select.sites import Site
from jaxsparse.tune.rows.draws import draw_for
from jaxsparse.tune.rows.given import FIRST, Given, kept


@dataclasses.dataclass(frozen=True)
class Made:
    """Operands, the share of active tiles (blocks, rows) in them, and whether the values of the
    first operand are data of the row, not noise.
    """

    operands: tuple[Any, ...]
    density: float
    fixed: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """What one row is measured on: `name` is equal where that is, `make` builds it."""

    name: str
    make: Callable[[], Made]


def index_of(site: Site) -> TileIndex | None:
    """The shapes of the site's index, where it has one."""
    return next((o for o in site.operands if isinstance(o, TileIndex)), None)


def of_masks(site: Site, masks: Sequence[np.ndarray]) -> list[Row]:
    """A row a mask, of a site with an index."""
    like = index_of(site)
    assert like is not None
    build = jax.jit(
        functools.partial(tile_index, tile=like.tile, capacity=like.capacity, align=like.align)
    )

    def make(mask: np.ndarray) -> Made:
        index = build(jnp.asarray(mask))
        operands = tuple(index if isinstance(o, TileIndex) else o for o in noise(site.operands))
        return Made(operands, float(index.tile_density()))

    return [Row(_digest(np.packbits(m)), functools.partial(make, m)) for m in masks]


def of_runs(site: Site, seen: Sequence[Given], densities: Sequence[float]) -> list[Row]:
    """A row for each different run, and for each density where the op's data can be drawn; of an op
    whose data does not matter one row of noise. None of an op whose data is not known.
    """
    problem = site.problem
    leaves = jax.tree.leaves(site.operands)
    fixed = problem.op in FIRST
    found = {one.digest: Row(one.digest, functools.partial(_made, site, one)) for one in seen}
    base = seen[0] if seen else None
    draw = draw_for(problem, site.operands, known=base is not None)
    if draw is not None:

        def make(density: float) -> Made:
            whole = noise(site.operands) if base is None else _made(site, base).operands
            operands, count = draw(problem, whole, density, np.random.default_rng(1))
            return Made(operands, _share(site, count), fixed)

        for density in densities:
            name = f"drawn {density}"
            found[name] = Row(name, functools.partial(make, density))
    elif not found and not any(kept(problem.op, i, leaf) for i, leaf in enumerate(leaves)):
        found["noise"] = Row("noise", lambda: Made(noise(site.operands), 1.0))
    return list(found.values())


def _made(site: Site, one: Given) -> Made:
    leaves, tree = jax.tree.flatten(noise(site.operands))
    for place, value in one.leaves.items():
        leaves[place] = jnp.asarray(value)
    fixed = site.problem.op in FIRST or 0 in one.leaves
    return Made(jax.tree.unflatten(tree, leaves), _share(site, one.count), fixed)


def _share(site: Site, count: int) -> float:
    return min(max(count / max(site.problem.n_tiles, 1), 0.0), 1.0)


def noise(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays for shapes: noise of unit gain, input masks full, other integers 0. An index stays as
    it is.
    """
    rng = np.random.default_rng(0)
    first = jax.tree.leaves(operands)[0]

    def fill(shape: Any) -> Any:
        if isinstance(shape, TileIndex):
            return shape
        if jnp.issubdtype(shape.dtype, jnp.floating):
            gain = 1 / math.sqrt(max(math.prod(shape.shape[:-1]), 1))
            drawn = rng.standard_normal(shape.shape, np.float32) * np.float32(gain)
            return jnp.asarray(drawn).astype(shape.dtype)
        full = first.ndim == 4 and shape.shape[:2] == first.shape[:2] and shape.dtype == jnp.uint32
        if full:
            return pack_mask(jnp.ones(first.shape[:3], bool))
        return jnp.zeros(shape.shape, shape.dtype)

    return jax.tree.map(fill, operands, is_leaf=lambda o: isinstance(o, TileIndex))


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]
