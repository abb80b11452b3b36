"""Digits on cluttered canvases: handwritten digits somewhere on pieces of photographs.

The photographs are scikit-learn's two. Pieces to train on come from their left three quarters,
pieces to test on from the rest. Digits are those of `gated_data`.
"""

import numpy as np
from sklearn.datasets import load_sample_images

from models import gated_data

TRAIN_SHARE = 0.75
#: Digits are drawn at full brightness, photographs at this one.
PHOTO_STRENGTH = 0.6


class Canvases:
    """A source of canvases of one side, a multiple of 32.

    Attributes:
        name: of the digits.
    """

    def __init__(self, side: int) -> None:
        digits = gated_data.load()
        self.name, self.side = digits.name, side
        self._digits = {
            "train": (digits.train_images, digits.train_labels),
            "test": (digits.test_images, digits.test_labels),
        }
        photos = [photo.astype(np.float32) / 255 for photo in load_sample_images().images]
        cut = int(TRAIN_SHARE * photos[0].shape[1])
        self._photos = {
            "train": [photo[:, :cut] for photo in photos],
            "test": [photo[:, cut:] for photo in photos],
        }

    def batch(
        self, part: str, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """`count` canvases f32[count,side,side,3] in [0,1] of "train" or "test", and their labels
        i32[count]. A digit's side is half of the canvas's.
        """
        images, labels = self._digits[part]
        chosen = rng.integers(0, len(labels), count)
        photos, side = self._photos[part], self.side
        high = np.minimum(photos[0].shape[:2], photos[1].shape[:2])
        zoom = max(1, -(-side // int(high.min())))
        piece = -(-side // zoom)
        canvases = np.empty((count, side, side, 3), np.float32)
        for canvas, i in zip(canvases, chosen, strict=True):
            photo = photos[rng.integers(len(photos))]
            top, left = (rng.integers(0, n - piece + 1) for n in photo.shape[:2])
            clutter = photo[top : top + piece, left : left + piece]
            clutter = clutter.repeat(zoom, 0).repeat(zoom, 1)[:side, :side]
            canvas[:] = PHOTO_STRENGTH * clutter[:, :: rng.choice((-1, 1))]
            scale = side // 64
            digit = images[i, 2:30, 2:30].repeat(scale, 0).repeat(scale, 1)
            top, left = (rng.integers(0, side - len(digit) + 1) for _ in range(2))
            under = canvas[top : top + len(digit), left : left + len(digit)]
            np.maximum(under, digit, out=under)
        return canvases, labels[chosen]
