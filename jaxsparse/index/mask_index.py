"""`MaskIndex`: a tile index that still holds the mask it was built of."""

import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Bool

from jaxsparse.index.types import TileIndex


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("ids", "count", "overflow", "words", "mask"),
    meta_fields=("tile", "shape", "capacity", "align"),
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MaskIndex(TileIndex):
    """A `TileIndex` and its mask: an op that only reads the mask (a dense convolution) then needs
    neither the list nor the words, and the compiler leaves out the calls that make them.

    Attributes:
        mask: bool[B, H, W].
    """

    mask: Bool[Array, "B H W"] | Any = None

    def to_mask(self) -> Bool[Array, "B H W"]:
        """The mask that was indexed, bool[B, H, W]."""
        return self.mask


def with_mask(index: TileIndex, mask: Bool[Array, "B H W"]) -> MaskIndex:
    """The index, and the mask that it was built of."""
    fields = {f.name: getattr(index, f.name) for f in dataclasses.fields(index)}
    return MaskIndex(**fields, mask=mask)
