"""Deterministic masks of a given pixel density, for tests, benchmarks and examples: numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray


def blobs(
    shape: tuple[int, int, int], density: float, *, seed: int = 0, scale: float | None = None
) -> NDArray[np.bool_]:
    """Smoothed noise above its quantile: regions with soft, curved borders.

    Args:
        shape: (B, H, W).
        density: share of active pixels of each image, 0 to 1 (to the nearest pixel).
        seed: equal seeds give equal masks.
        scale: standard deviation of the smoothing in pixels; None takes 1/16 of the longer side.

    Returns:
        bool[B, H, W].
    """
    from scipy import ndimage

    rng = np.random.default_rng(seed)
    scale = max(shape[1:], default=0) / 16 if scale is None else scale
    noise = rng.standard_normal(shape)
    fields = [ndimage.gaussian_filter(image, scale, mode="wrap") for image in noise]
    return _densest(np.stack(fields) if fields else noise, density)


def rectangles(
    shape: tuple[int, int, int], density: float, *, seed: int = 0, count: int = 1
) -> NDArray[np.bool_]:
    """`count` rectangles of equal area in each image, side by side in strips, without overlap.

    Args:
        shape: (B, H, W).
        density: share of active pixels that the rectangles aim at, 0 to 1; rounded to whole rows
            and columns.
        seed: places the rectangles.
        count: how many, at most W.

    Returns:
        bool[B, H, W].
    """
    rng = np.random.default_rng(seed)
    images, height, width = shape
    _check(density)
    mask = np.zeros(shape, bool)
    bounds = np.linspace(0, width, count + 1).astype(int)
    for b in range(images):
        for left, right in itertools.pairwise(bounds):
            h, w = round(height * math.sqrt(density)), round((right - left) * math.sqrt(density))
            y = rng.integers(height - h + 1)
            x = left + rng.integers(right - left - w + 1)
            mask[b, y : y + h, x : x + w] = True
    return mask


def edges(image: npt.ArrayLike, density: float) -> NDArray[np.bool_]:
    """The steepest pixels of a photograph: gradient magnitude above its quantile.

    Args:
        image: [H, W] or [H, W, C] of any real dtype.
        density: share of active pixels, 0 to 1 (to the nearest pixel).

    Returns:
        bool[1, H, W].
    """
    from scipy import ndimage

    grey = np.asarray(image, np.float64)
    grey = grey.mean(-1) if grey.ndim == 3 else grey
    if grey.ndim != 2:
        raise ValueError(f"image has shape {np.shape(image)}; it needs [H, W] or [H, W, C]")
    return _densest(ndimage.gaussian_gradient_magnitude(grey, 1.0)[None], density)


def random_pixels(
    shape: tuple[int, int, int], density: float, *, seed: int = 0
) -> NDArray[np.bool_]:
    """Pixels chosen independently: the worst case for tiles. bool[B, H, W] of shape (B, H, W)."""
    return _densest(np.random.default_rng(seed).random(shape), density)


def _densest(field: NDArray[np.float64], density: float) -> NDArray[np.bool_]:
    """Each image's pixels of the greatest values; ties go to the first pixel."""
    _check(density)
    pixels = field[0].size if len(field) else 0
    flat = field.reshape(len(field), pixels)
    mask = np.zeros(flat.shape, bool)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : round(density * pixels)]
    np.put_along_axis(mask, order, True, axis=1)
    return mask.reshape(field.shape)


def _check(density: float) -> None:
    if not 0 <= density <= 1:
        raise ValueError(f"density={density}; it takes 0 to 1")
