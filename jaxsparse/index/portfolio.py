"""`portfolio_index`: the lists of every tile size of a portfolio and the cheapest variant, at once,
each byte of the mask read once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32

from jaxsparse.bits.pack import word_count
from jaxsparse.core.batching import kept
from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ffi.fold import fold_lists
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.index.checks import SIDES, check_size, check_spatial_mask, check_tile, tile_code
from jaxsparse.index.compact import ListSpec, limited
from jaxsparse.index.mask_list import PORTFOLIO_SCRATCH
from jaxsparse.index.shards import Kind, split_lists
from jaxsparse.index.types import TileIndex, room_for
from jaxsparse.reference.portfolio_index import portfolio_index as reference_portfolio
from jaxsparse.select.costs import COLUMNS

MAX_TILES = 8


class Portfolio(NamedTuple):
    """The lists of one mask, one per tile size, and the variant to run: all on the device.

    Attributes:
        indices: a `TileIndex` per tile, of the same words.
        choice: int32[], the row of `costs` that is cheapest.
    """

    indices: tuple[TileIndex, ...]
    choice: Int32[Array, ""]

    @property
    def counts(self) -> Int32[Array, "k"]:
        """int32[k], the active tiles of each list, also past a capacity."""
        return jnp.stack([index.count for index in self.indices], -1)


class PortfolioSpec(NamedTuple):
    """What a portfolio is, apart from its mask and costs: static."""

    tiles: tuple[tuple[int, int], ...]
    capacities: tuple[int, ...]
    implementation: Any


def portfolio_index(
    mask: Bool[ArrayLike, "B H W"],
    tiles: Sequence[tuple[int, int]],
    costs: Float[ArrayLike, "v 3"] | Float[ArrayLike, "v 5"],
    *,
    capacities: Sequence[int | None] | None = None,
    implementation: Implementation = None,
) -> Portfolio:
    """List the active tiles of a mask for several tile sizes, and choose among variants.

    Args:
        mask: bool[B, H, W], of an op's output.
        tiles: one to eight (height, width), each side 1, 2, 4, 8, 16 or 32.
        costs: float32[v, 5] or [v, 3], data: a row (a, b, t, wave, per_wave) a variant. Its cost is
            a + b*n + wave*ceil(n/per_wave) for n = counts[t], without the waves where per_wave is
            below 1 or there are three columns; a alone where t names none of the lists (-1: a
            variant that visits no list, dense). A variant whose list overflows, or whose cost is
            NaN, costs infinity. The first of the least wins.
        capacities: room in each list; None makes room for all tiles.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A `Portfolio`. The order within a list is not specified.

    Raises:
        TypeError, ValueError: for a wrong rank, dtype, tile, capacity or table, and when a named
            implementation cannot run.
    """
    shape = check_spatial_mask(mask)
    tiles = _check_tiles(tiles)
    for tile in tiles:
        check_size(shape, tile, "grid")
    room = _check_capacities(capacities, shape, tiles)
    costs = _check_costs(costs)
    spec = PortfolioSpec(tiles, room, implementation_key(implementation))
    words, choice, *lists = _list(jnp.asarray(mask), costs, spec)
    each = zip(lists[0::3], lists[1::3], lists[2::3], tiles, room, strict=True)
    indices = tuple(
        TileIndex(ids, count, overflow, words, tile, shape, capacity)
        for ids, count, overflow, tile, capacity in each
    )
    return Portfolio(indices, choice)


def _check_costs(costs: Any) -> jax.Array:
    """`costs` with all columns."""
    if (
        getattr(costs, "dtype", None) != np.float32
        or costs.ndim != 2
        or costs.shape[1] not in (3, len(COLUMNS))
    ):
        raise ValueError(f"costs must be float32[v, 5], rows of {', '.join(COLUMNS)}, or [v, 3]")
    return jnp.pad(jnp.asarray(costs), ((0, 0), (0, len(COLUMNS) - costs.shape[1])))


def _check_tiles(tiles: Any) -> tuple[tuple[int, int], ...]:
    found = tuple(check_tile(tile) for tile in tiles)
    if not 1 <= len(found) <= MAX_TILES:
        raise ValueError(f"tiles has {len(found)} sizes; it takes 1 to {MAX_TILES}")
    for tile in found:
        if not set(tile) <= set(SIDES):
            raise ValueError(f"tiles holds {tile}; each side is one of {SIDES}")
    return found


def _check_capacities(
    capacities: Any, shape: tuple[int, int, int], tiles: tuple[tuple[int, int], ...]
) -> tuple[int, ...]:
    given = [None] * len(tiles) if capacities is None else list(capacities)
    if len(given) != len(tiles):
        raise ValueError(f"capacities has {len(given)} entries; tiles has {len(tiles)}")
    return tuple(
        room_for(shape, tile, "grid", room) for room, tile in zip(given, tiles, strict=True)
    )


@functools.partial(jax.jit, static_argnums=2)
def _list(mask: jax.Array, costs: jax.Array, spec: PortfolioSpec) -> tuple[jax.Array, ...]:
    return tuple(x[0] for x in _lister(spec)(mask[None], jnp.asarray(costs)[None]))


@kept
def _lister(spec: PortfolioSpec) -> Callable[..., tuple[jax.Array, ...]]:
    """mask[L,B,H,W], costs[L,v,5] -> words, choice, then ids, count, overflow of each list, of L
    masks. Its vmap rule folds the batch axis into L.
    """

    def call(parts: int) -> Callable[..., tuple[jax.Array, ...]]:
        part = spec._replace(capacities=tuple(room // parts for room in spec.capacities))
        return dispatch(
            "portfolio_index",
            spec.implementation,
            cuda=functools.partial(_native, part, PORTFOLIO_SCRATCH),
            cpu=functools.partial(_native, part, 0),
            reference=functools.partial(_reference, part),
        )

    def run_here(mask: jax.Array, costs: jax.Array) -> tuple[jax.Array, ...]:
        lists: list[Kind] = ["ids", "count", "overflow"] * len(spec.tiles)
        whys = (
            limited(ListSpec(mask.shape[3], tile, room, False, "grid", None), mask.shape[1:3])
            for tile, room in zip(spec.tiles, spec.capacities, strict=True)
        )
        names, operands = ["mask", "costs"], ["l b . .", "l . ."]
        why = next(filter(None, whys), "")
        split = split_lists(names, operands, ["words", "choice", *lists], call, why)
        return split(mask, costs)

    return fold_lists(run_here)


def _reference(spec: PortfolioSpec, mask: jax.Array, costs: jax.Array) -> tuple[jax.Array, ...]:
    return reference_portfolio(mask, costs, tiles=spec.tiles, capacities=spec.capacities)


def _native(
    spec: PortfolioSpec, scratch: int, mask: jax.Array, costs: jax.Array
) -> tuple[jax.Array, ...]:
    lists, images, height, width = mask.shape
    words, choice, _, *found = ffi_call(
        "jaxsparse_portfolio_index",
        [
            ((lists, images, height, word_count(width)), np.uint32),
            ((lists,), np.int32),
            ((scratch,), np.int32),
            *(
                result
                for capacity in spec.capacities
                for result in (
                    ((lists, capacity), np.int32),
                    ((lists,), np.int32),
                    ((lists,), np.bool_),
                )
            ),
        ],
        mask,
        costs,
        tiles=_encode(spec.tiles),
    )
    return words, choice, *found


def _encode(tiles: tuple[tuple[int, int], ...]) -> int:
    """Byte t is the code of tile t."""
    return sum(tile_code(tile) << (8 * t) for t, tile in enumerate(tiles))
