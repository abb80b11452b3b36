"""Masks as values: how they go through windows; drawings, plots, and generators to test with."""

from typing import TYPE_CHECKING

from jaxsparse.core.lazy import lazy
from jaxsparse.mask.blobs import blobs as blobs
from jaxsparse.mask.blobs import edges as edges
from jaxsparse.mask.blobs import random_pixels as random_pixels
from jaxsparse.mask.blobs import rectangles as rectangles
from jaxsparse.mask.draw import show as show
from jaxsparse.mask.lengths import lengths_mask as lengths_mask
from jaxsparse.mask.plot import plot as plot

if TYPE_CHECKING:
    from jaxsparse.bits.windowed import dilate as dilate
    from jaxsparse.bits.windowed import downsample as downsample
    from jaxsparse.bits.windowed import needed as needed
    from jaxsparse.bits.windowed import pool as pool
    from jaxsparse.bits.windowed import propagate as propagate

__all__ = [
    "blobs",
    "dilate",
    "downsample",
    "edges",
    "lengths_mask",
    "needed",
    "plot",
    "pool",
    "propagate",
    "random_pixels",
    "rectangles",
    "show",
]

if not TYPE_CHECKING:  # checkers see the imports above, and refuse other names
    _WINDOWED = ("dilate", "downsample", "needed", "pool", "propagate")
    __getattr__ = lazy(__name__, dict.fromkeys(_WINDOWED, "jaxsparse.bits.windowed"))
