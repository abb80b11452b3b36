"""A synthetic screen that changes a little frame by frame, and the boxes of its text."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

WORDS = (
    "sparse",
    "mask",
    "index",
    "tile",
    "kernel",
    "frame",
    "screen",
    "window",
    "layer",
    "report",
)
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
SPREAD = np.array([0.229, 0.224, 0.225], np.float32)


class Screen:
    """Lines of words; each frame types a word over another."""

    def __init__(self, height: int, width: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.font = ImageFont.load_default(22)
        self.image = Image.new("RGBA", (width, height), "white")
        self.draw = ImageDraw.Draw(self.image)
        self.draw.rectangle((0, 0, width, 36), fill="#284060")
        self.places = [
            (x, y) for y in range(60, height - 40, 52) for x in range(24, width - 150, 170)
        ]
        for place in self.places:
            if self.rng.random() < 0.7:
                self._write(place)

    def _write(self, place: tuple[int, int]) -> None:
        x, y = place
        self.draw.rectangle((x, y, x + 145, y + 34), fill="white")
        word = str(self.rng.choice(WORDS))
        self.draw.text((x + 4, y + 3), word, fill="black", font=self.font)

    def frame(self) -> np.ndarray:
        """uint32[1,H,W], red in the lowest byte."""
        return np.asarray(self.image).view(np.uint32)[None, ..., 0].copy()

    def next(self) -> np.ndarray:
        """The frame after one more word."""
        self._write(self.places[self.rng.integers(len(self.places))])
        return self.frame()


def rgb(frame: np.ndarray) -> np.ndarray:
    """uint8[H,W,3] of a frame uint32[1,H,W]."""
    return frame[0, ..., None].view(np.uint8)[..., :3]


def normalised(frame: np.ndarray) -> np.ndarray:
    """f32[1,3,H,W], as the detector takes it from onnxruntime."""
    image = (rgb(frame).astype(np.float32) / 255 - MEAN) / SPREAD
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def boxes(probability: np.ndarray, least: float = 0.3, mean: float = 0.5) -> np.ndarray:
    """int[N,4] (top, left, bottom, right) of the regions of f32[H,W] above `least` whose mean is
    above `mean`, in raster order.
    """
    labels, count = ndimage.label(probability > least)
    scores = ndimage.mean(probability, labels, range(1, count + 1))
    found = zip(ndimage.find_objects(labels), np.atleast_1d(scores), strict=True)
    kept = [(y.start, x.start, y.stop, x.stop) for (y, x), score in found if score > mean]
    return np.array(kept, int).reshape(-1, 4)


def overlap(a: np.ndarray, b: np.ndarray) -> tuple[int, float]:
    """How many boxes of `a` have none in `b` that they share half with, and the least share of
    those that have: intersection over union.
    """
    if not len(a) or not len(b):
        return len(a), 1.0
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    inside = np.maximum(high - low, 0).prod(-1)
    areas = [(each[:, 2:] - each[:, :2]).prod(-1) for each in (a, b)]
    shares = (inside / (areas[0][:, None] + areas[1][None] - inside)).max(1)
    found = shares >= 0.5
    return int((~found).sum()), float(shares[found].min(initial=1.0))
