"""Masks to look at and to test with: drawings, plots, generators, and what a window reaches."""

from jaxsparse.mask.blobs import blobs as blobs
from jaxsparse.mask.blobs import edges as edges
from jaxsparse.mask.blobs import random_pixels as random_pixels
from jaxsparse.mask.blobs import rectangles as rectangles
from jaxsparse.mask.draw import show as show
from jaxsparse.mask.lengths import lengths_mask as lengths_mask
from jaxsparse.mask.plot import plot as plot
from jaxsparse.mask.reach import affected as affected
from jaxsparse.mask.reach import reach as reach

__all__ = [
    "affected",
    "blobs",
    "edges",
    "lengths_mask",
    "plot",
    "random_pixels",
    "reach",
    "rectangles",
    "show",
]
