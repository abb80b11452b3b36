"""Problem cases and masks by name, shared by tests, benchmarks and the tuner."""

from jaxsparse.testing.cases import CASES as CASES
from jaxsparse.testing.cases import ConvCase as ConvCase
from jaxsparse.testing.cases import case as case
from jaxsparse.testing.cases import cases as cases
from jaxsparse.testing.masks import MASKS as MASKS
from jaxsparse.testing.masks import make_masks as make_masks
from jaxsparse.testing.masks import masks_of_tile_density as masks_of_tile_density
from jaxsparse.testing.masks import photograph as photograph
from jaxsparse.testing.masks import tile_density as tile_density

__all__ = [
    "CASES",
    "MASKS",
    "ConvCase",
    "case",
    "cases",
    "make_masks",
    "masks_of_tile_density",
    "photograph",
    "tile_density",
]
