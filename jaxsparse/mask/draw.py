"""Masks drawn in the terminal: two pixels to a character, scaled down to its width."""

from __future__ import annotations

import shutil
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from jaxsparse.core.variables import takes_variables

MAX_ROWS = 40
MAX_IMAGES = 2
_PIXELS = np.array([[" ", "▄"], ["▀", "█"]])  # by upper, lower
_TILE = "░"


@runtime_checkable
class Indexed(Protocol):
    """A `js.TileIndex`: what holds a mask."""

    def to_mask(self) -> Bool[Array, "B H W"]:
        """The mask that was indexed."""
        ...


@runtime_checkable
class Blocked(Protocol):
    """A `js.BlockMask`: blocks that count, some of them in full."""

    def block_bits(self) -> Bool[Array, "b h Q C"]:
        """The blocks that count."""
        ...

    def full_block_bits(self) -> Bool[Array, "b h Q C"]:
        """Those that count in full."""
        ...


@takes_variables
def show(mask_or_index: Bool[ArrayLike, "... H W"] | Indexed | Blocked) -> None:
    """Print the drawing of a bool[H, W] or bool[B, H, W] mask, a `TileIndex` and its drawing, or a
    `BlockMask` and the drawing of its blocks, partial ones in grey.

    Raises:
        TypeError: for anything else, and under a jax transformation.
    """
    if isinstance(mask_or_index, Blocked):
        full, listed = block_images(mask_or_index)
        print(f"{mask_or_index}\n{draw_mask(full, tiles=listed, what='full, of blocks')}")
    elif isinstance(mask_or_index, Indexed):
        print(f"{mask_or_index}\n{draw_index(mask_or_index)}")
    else:
        print(draw_mask(as_images(mask_or_index)))


def as_images(mask: Any) -> np.ndarray:
    """A mask as bool[B, H, W] in host memory.

    Raises:
        TypeError: when it is not a bool array of 2 or 3 axes.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.ndim not in (2, 3):
        raise TypeError(
            f"a mask is bool[H, W] or bool[B, H, W], not {mask.dtype}{list(mask.shape)}"
        )
    return mask if mask.ndim == 3 else mask[None]


def draw_index(index: Any, columns: int | None = None) -> str:
    """The drawing of a `TileIndex`: its pixels, and in grey what listed tiles hold beside them."""
    mask = as_images(index.to_mask())
    return draw_mask(mask, tiles=tile_area(index), columns=columns)


def block_images(mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """The full blocks of a `BlockMask`, and all that count: bool[images, Q, C] each, an image for
    each batch entry and head.
    """
    full, listed = np.asarray(mask.full_block_bits()), np.asarray(mask.block_bits())
    shape = (-1, *listed.shape[2:]) if listed.size else (0, *listed.shape[2:])
    return full.reshape(shape), listed.reshape(shape)


def tile_origins(index: Any) -> np.ndarray:
    """int[n, 3]: image, top and left of each listed tile of a `TileIndex`."""
    ids = np.asarray(index.ids)[: int(index.count)]
    if index.align == "component":
        return ids
    rows, cols = index.grid
    i, j = ids // max(cols, 1) % max(rows, 1), ids % max(cols, 1)
    b = ids // max(rows * cols, 1)
    return np.stack([b, i * index.tile[0], j * index.tile[1]], -1)


def tile_area(index: Any) -> np.ndarray:
    """bool[B, H, W]: the pixels of the listed tiles, active or not."""
    area = np.zeros(index.shape, bool)
    for b, y, x in tile_origins(index):
        area[b, y : y + index.tile[0], x : x + index.tile[1]] = True
    return area


def draw_mask(
    mask: np.ndarray,
    *,
    tiles: np.ndarray | None = None,
    columns: int | None = None,
    what: str = "active",
) -> str:
    """The drawing of a mask, its first images one below the other.

    Args:
        mask: bool[B, H, W].
        tiles: bool[B, H, W], drawn in grey where no pixel is active.
        columns: width of the drawing in characters; None takes the terminal's.
        what: the word for a pixel that is drawn.
    """
    columns = columns or shutil.get_terminal_size((80, 24)).columns
    lines = []
    for b, image in enumerate(mask[:MAX_IMAGES]):
        height, width = image.shape
        scale = max(-(-width // columns), -(-height // (2 * MAX_ROWS)), 1)
        share = 100 * image.mean() if image.size else 0.0
        step = f", one character is {scale} x {2 * scale} pixels" if scale > 1 else ""
        lines.append(f"image {b}: {height} x {width}, {share:.1f} % {what}{step}")
        pixels = _halves(image, scale)
        text = _PIXELS[pixels[:, 0].astype(int), pixels[:, 1].astype(int)]
        if tiles is not None:
            text = np.where(_halves(tiles[b], scale).any(1) & ~pixels.any(1), _TILE, text)
        lines += ["".join(row).rstrip() for row in text]
    if len(mask) > MAX_IMAGES:
        lines.append(f"... and {len(mask) - MAX_IMAGES} more")
    return "\n".join(lines)


def _halves(image: np.ndarray, scale: int) -> np.ndarray:
    """bool[rows, 2, columns]: which cells of scale x scale pixels hold an active one."""
    height, width = image.shape
    rows, cols = -(-height // (2 * scale)), -(-width // scale)
    padded = np.pad(image, ((0, rows * 2 * scale - height), (0, cols * scale - width)))
    return np.asarray(padded.reshape(rows, 2, scale, cols, scale).any((2, 4)))
