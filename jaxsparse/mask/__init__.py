"""Masks as values: how they go through windows; drawings, plots, and generators to test with."""

from jaxsparse.mask.blobs import blobs as blobs
from jaxsparse.mask.blobs import edges as edges
from jaxsparse.mask.blobs import random_pixels as random_pixels
from jaxsparse.mask.blobs import rectangles as rectangles
from jaxsparse.mask.draw import show as show
from jaxsparse.mask.lengths import lengths_mask as lengths_mask
from jaxsparse.mask.plot import plot as plot
from jaxsparse.mask.window import dilate as dilate
from jaxsparse.mask.window import downsample as downsample
from jaxsparse.mask.window import needed as needed
from jaxsparse.mask.window import pool as pool
from jaxsparse.mask.window import propagate as propagate

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
