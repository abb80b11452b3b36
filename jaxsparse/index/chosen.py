"""`ChosenIndex`: a tile index together with the variant that its kernel chose for one op."""

import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Bool, Int32

from jaxsparse.ffi import Implementation
from jaxsparse.index.portfolio import portfolio_index
from jaxsparse.index.types import TileIndex, max_tiles
from jaxsparse.select.costs import Candidate, rows_of


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("ids", "count", "overflow", "words", "choice", "others"),
    meta_fields=("tile", "shape", "capacity", "align", "candidates"),
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ChosenIndex(TileIndex):
    """A `TileIndex` whose kernel also wrote which of `candidates` is cheapest for its count.

    Attributes:
        choice: int32[], on the device.
        others: the same mask's lists of other tiles, which candidates name as list 1, 2, ...
        candidates: what it chose among; an op that would choose among others chooses by itself.
    """

    choice: Int32[Array, ""] | Any = None
    others: tuple[TileIndex, ...] = ()
    candidates: tuple[Candidate, ...] = ()


def chosen_index(
    mask: Bool[Array, "B H W"],
    tiles: tuple[tuple[int, int], ...],
    candidates: tuple[Candidate, ...],
    *,
    implementation: Implementation = None,
) -> ChosenIndex:
    """List the active tiles of a mask and choose among candidates, in one custom call.

    Args:
        mask: bool[B, H, W], of an op's output.
        tiles: one to four (height, width), each side 1, 2, 4, 8, 16 or 32; the first is the
            index's own.
        candidates: one or more, over these lists.
        implementation: as in `tile_index`.

    Returns:
        A `ChosenIndex` with room for every tile in every list.

    Raises:
        TypeError, ValueError: as in `portfolio_index`.
    """
    found = portfolio_index(
        mask, tiles, jax.numpy.asarray(rows_of(candidates)), implementation=implementation
    )
    index, *others = found.indices
    fields = {f.name: getattr(index, f.name) for f in dataclasses.fields(index)}
    return ChosenIndex(**fields, choice=found.choice, others=tuple(others), candidates=candidates)


def lists_of(index: TileIndex) -> tuple[TileIndex, ...]:
    """The lists that a call on this index may visit."""
    return (index, *index.others) if isinstance(index, ChosenIndex) else (index,)


def no_index(shape: tuple[int, int, int], tiles: tuple[tuple[int, int], ...]) -> ChosenIndex:
    """The static side of an index of a mask of `shape` with room for every tile; it holds no
    arrays.
    """
    nothing: Any = None
    first, *others = (
        ChosenIndex(nothing, nothing, nothing, nothing, tile, shape, max_tiles(shape, tile, "grid"))
        for tile in tiles
    )
    return dataclasses.replace(first, others=tuple(others))
