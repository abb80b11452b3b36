"""Masks by name, several of one density: numpy. Densities can be asked for by pixels or by
tiles.
"""

import functools
from collections.abc import Callable

import numpy as np

from jaxsparse.mask.blobs import blobs, edges, random_pixels, rectangles

Shape = tuple[int, int, int]


@functools.cache
def photograph() -> np.ndarray:
    """A photograph as float64 [H, W] in [0, 1].

    scikit-learn's temple in China where it is installed; else a drawn scene of shaded discs over a
    gradient with film grain, whose edges are curves of all lengths like a photograph's.
    """
    try:
        from sklearn.datasets import load_sample_image

        return np.asarray(load_sample_image("china.jpg"), np.float64).mean(-1) / 255
    except ImportError:
        return _scene()


def _scene(height: int = 427, width: int = 640) -> np.ndarray:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    image = y / height / 2
    for _ in range(120):
        cy, cx, radius = rng.random() * height, rng.random() * width, 4 + 60 * rng.random() ** 3
        inside = (y - cy) ** 2 + (x - cx) ** 2 < radius**2
        image = np.where(inside, rng.random() * (0.7 + 0.3 * (y - cy) / radius), image)
    return np.clip(image + 0.01 * rng.standard_normal(image.shape), 0, 1)


def _edges(shape: Shape, density: float, seed: int) -> np.ndarray:
    """The edges of crops of the photograph; a crop is as large as fits and scaled to the shape."""
    from scipy import ndimage

    photo = photograph()
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(shape[0]):
        scale = min(photo.shape[0] / shape[1], photo.shape[1] / shape[2])
        size = [max(1, min(n, int(m * scale))) for m, n in zip(shape[1:], photo.shape, strict=True)]
        top, left = (int(rng.integers(n - m + 1)) for m, n in zip(size, photo.shape, strict=True))
        crop = photo[top : top + size[0], left : left + size[1]]
        rows = np.linspace(0, size[0] - 1, shape[1])
        columns = np.linspace(0, size[1] - 1, shape[2])
        grid = np.meshgrid(rows, columns, indexing="ij")
        images.append(edges(ndimage.map_coordinates(crop, grid, order=1), density)[0])
    return np.stack(images) if images else np.zeros(shape, bool)


def _fine_blobs(shape: Shape, density: float, seed: int) -> np.ndarray:
    return blobs(shape, density, seed=seed, scale=max(shape[1:], default=0) / 64)


#: Name -> function (shape, density, seed) -> bool[B, H, W].
MASKS: dict[str, Callable[[Shape, float, int], np.ndarray]] = {
    "blobs": lambda shape, density, seed: blobs(shape, density, seed=seed),
    "fine_blobs": _fine_blobs,
    "edges": _edges,
    "rectangles": lambda shape, density, seed: rectangles(shape, density, seed=seed),
    "random": lambda shape, density, seed: random_pixels(shape, density, seed=seed),
}


def make_masks(
    name: str, shape: Shape, density: float, *, count: int = 1, seed: int = 0
) -> list[np.ndarray]:
    """`count` different masks bool[B, H, W] of one pixel density.

    Args:
        name: a key of MASKS.
        shape: (B, H, W).
        density: share of active pixels, 0 to 1.
        count: how many.
        seed: equal seeds give equal masks.

    Raises:
        ValueError: for a name that does not exist or a density outside 0 to 1.
    """
    if name not in MASKS:
        raise ValueError(f"mask={name!r} is not one of {', '.join(MASKS)}")
    return [MASKS[name](shape, density, seed + i) for i in range(count)]


def tile_density(mask: np.ndarray, tile: tuple[int, int]) -> float:
    """The share of the tiles (aligned to the grid) of bool[B, H, W] that hold an active pixel; 0
    without tiles.
    """
    images, height, width = mask.shape
    rows, columns = -(-height // tile[0]), -(-width // tile[1])
    if 0 in (images, rows, columns):
        return 0.0
    padded = np.pad(mask, ((0, 0), (0, rows * tile[0] - height), (0, columns * tile[1] - width)))
    return float(padded.reshape(images, rows, tile[0], columns, tile[1]).any((2, 4)).mean())


def masks_of_tile_density(
    name: str, shape: Shape, density: float, tile: tuple[int, int], *, count: int = 1, seed: int = 0
) -> list[np.ndarray]:
    """As `make_masks`, at the pixel density that gives the first of them about this tile density,
    by bisection.
    """
    if tile == (1, 1) or density in (0.0, 1.0):
        return make_masks(name, shape, density, count=count, seed=seed)
    low, high = 0.0, density
    for _ in range(10):
        middle = (low + high) / 2
        if tile_density(make_masks(name, shape, middle, seed=seed)[0], tile) < density:
            low = middle
        else:
            high = middle
    return make_masks(name, shape, high, count=count, seed=seed)
