"""Masks and indices drawn with matplotlib, over the image that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jaxsparse.core.variables import takes_variables
from jaxsparse.mask.draw import Blocked, Indexed, as_images, block_images, tile_origins

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_IMAGES = 4


@takes_variables
def plot(
    mask_or_index: Bool[ArrayLike, "... H W"] | Indexed | Blocked, image: ArrayLike | None = None
) -> Figure:
    """Draw a mask, or a `TileIndex` with its tiles outlined, over an image; or the blocks of a
    `BlockMask`, partial ones paler.

    Args:
        mask_or_index: bool[H, W], bool[B, H, W], a `TileIndex` or a `BlockMask`.
        image: [H, W], [H, W, C] (one image), or [B, H, W, C], C being 1, 3 or 4, floats in [0, 1]
            or uint8. It may be larger or smaller than the mask, which is stretched over it.

    Returns:
        A matplotlib Figure of the first four images; `savefig` writes it.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for anything that is not a mask or image, and for an image behind a
            BlockMask.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(
            "js.plot needs matplotlib: pip install 'jaxsparse[plot]'", name=error.name
        ) from error
    if isinstance(mask_or_index, Blocked):
        if image is not None:
            raise ValueError("image: a BlockMask is drawn without one")
        return _blocks(mask_or_index)
    index = mask_or_index if isinstance(mask_or_index, Indexed) else None
    mask = as_images(mask_or_index if index is None else index.to_mask())
    images = _images(image, len(mask))
    shown = min(len(mask), MAX_IMAGES)
    figure = Figure(figsize=(4 * max(shown, 1), 4), layout="constrained")
    for b in range(shown):
        axes = figure.add_subplot(1, shown, b + 1)
        height, width = mask.shape[1:]
        extent = (0, width, height, 0)
        if images is not None:
            axes.imshow(images[b], extent=extent, cmap="gray")
        overlay = np.zeros((height, width, 4), np.float32)
        overlay[mask[b]] = (1.0, 0.35, 0.1, 0.45 if images is not None else 1.0)
        axes.imshow(overlay, extent=extent, interpolation="nearest")
        if index is not None:
            _outline(axes, index, b)
        axes.set(
            xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[], title=_title(mask[b], index, b)
        )
    return figure


def _blocks(mask: Any) -> Figure:
    """A square for each block of a `BlockMask`: queries downwards, keys to the right."""
    from matplotlib.figure import Figure

    full, listed = block_images(mask)
    shown = min(len(full), MAX_IMAGES)
    figure = Figure(figsize=(4 * max(shown, 1), 4), layout="constrained")
    for i in range(shown):
        axes = figure.add_subplot(1, shown, i + 1)
        colours = np.ones((*full[i].shape, 3), np.float32)
        colours[listed[i]] = (1.0, 0.78, 0.66)
        colours[full[i]] = (0.93, 0.42, 0.16)
        axes.imshow(colours, interpolation="nearest", aspect="auto")
        b, h = divmod(i, mask.shape[1])
        left_out = 100 * (1 - listed[i].mean())
        axes.set(xticks=[], yticks=[], xlabel="blocks of keys", ylabel="blocks of queries")
        axes.set_title(f"batch {b}, head {h}: {left_out:.0f} % of blocks left out")
    return figure


def _outline(axes: Any, index: Any, b: int) -> None:
    """The borders of the listed tiles of image b."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    th, tw = index.tile
    tiles = [Rectangle((x, y), tw, th) for image, y, x in tile_origins(index) if image == b]
    axes.add_collection(
        PatchCollection(tiles, facecolor="none", edgecolor="#1060d0", linewidth=0.6)
    )


def _title(mask: np.ndarray, index: Any, b: int) -> str:
    text = f"{100 * mask.mean() if mask.size else 0.0:.1f} % of pixels"
    if index is None:
        return text
    listed = int((tile_origins(index)[:, 0] == b).sum())
    return f"{text}, {listed} tiles of {index.tile[0]}x{index.tile[1]}"


def _images(image: Any, count: int) -> np.ndarray | None:
    """The image of each mask, [count, H, W] or [count, H, W, C]."""
    if image is None:
        return None
    image = np.asarray(image)
    if image.ndim == 2 or (image.ndim == 3 and image.shape[-1] in (1, 3, 4)):
        image = image[None]
    if image.ndim not in (3, 4) or len(image) not in (1, count):
        raise ValueError(
            f"image has shape {image.shape}; it takes [H, W], [H, W, C] or [{count}, H, W, C]"
        )
    if image.dtype != np.uint8:
        image = np.clip(image.astype(np.float32), 0, 1)
    if image.ndim == 4 and image.shape[-1] == 1:
        image = image[..., 0]
    return np.broadcast_to(image, (count, *image.shape[1:]))
