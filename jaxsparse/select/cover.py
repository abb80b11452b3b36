"""Cover cost: choose the compute tile by how many of them a mask takes.

A tile of r rows multiplies the columns that one of its rows keeps: tall tiles share what they
load among more rows, short ones multiply fewer masked entries. Which is less depends on the mask,
so it is counted on samples of it (SparDA, Algorithm 2). The native handlers of `masked_matmul`
count in the same way on the mask at hand.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class CoverTile(NamedTuple):
    """A compute tile: its rows, and what one of its columns costs."""

    name: str
    rows: int
    cost: float


def cover(mask: Any, block: tuple[int, int], size: tuple[int, int], rows: int) -> int:
    """How many columns the strips of `rows` rows need together to cover a mask.

    Args:
        mask: bool[ceil(m/block[0]), ceil(k/block[1])].
        block: rows and columns of a block.
        size: (m, k) of the masked matrix.
        rows: of a strip.

    Returns:
        The sum over the strips of the columns that one of their rows keeps.

    Raises:
        ValueError: for a mask of another shape.
    """
    mask = np.asarray(mask, bool)
    needs = tuple(-(-n // g) for n, g in zip(size, block, strict=True))
    if mask.shape != needs:
        raise ValueError(f"mask has shape {mask.shape}; blocks of {block} in {size} need {needs}")
    widths = np.full(needs[1], block[1])
    if needs[1]:
        widths[-1] = size[1] - (needs[1] - 1) * block[1]
    total = 0
    for first in range(0, size[0], rows):
        last = min(first + rows, size[0]) - 1
        strip = mask[first // block[0] : last // block[0] + 1]
        total += int(widths[strip.any(axis=0)].sum())
    return total


def least_cover(
    samples: Sequence[Any],
    tiles: Sequence[CoverTile],
    block: tuple[int, int],
    size: tuple[int, int],
) -> CoverTile:
    """The tile whose cover of all samples costs least; the first of equal ones.

    Args:
        samples: masks as `cover` takes them.
        tiles: what to choose among.
        block: rows and columns of a block.
        size: (m, k) of the masked matrix.

    Raises:
        ValueError: without a tile.
    """
    if not tiles:
        raise ValueError("tiles is empty; it takes at least one")
    costs = [t.cost * sum(cover(s, block, size, t.rows) for s in samples) for t in tiles]
    return tiles[int(np.argmin(costs))]
