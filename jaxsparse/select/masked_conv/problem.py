"""`ConvProblem`: what the choice for one masked convolution depends on."""

import dataclasses
import math

from jaxsparse.core.geometry import Geometry, Pair
from jaxsparse.select.problem import Problem

OP = "masked_conv"


@dataclasses.dataclass(frozen=True)
class ConvProblem:
    """One call: its shapes, its index, and what is asked of it.

    Attributes:
        platform: "cpu" or "cuda".
        x_shape: [B, H, W, C]; kernel_shape: [kh, kw, C/groups, O]; shape: (B, Ho, Wo).
        itemsize: bytes of an element of x; `dtype` its name.
        precision: "highest" or "default".
        tiles: (height, width) of the tiles of each list of the index.
        align: of the index: "grid" or "component".
        may_overflow: whether its first list may have too little room.
        masked_input: whether a mask on the input's pixels is given.
        fills: whether zeros are written where no product is: without a `base`.
        own: whether an implementation is demanded by name.
        asked: the op that the user called, where it is another one.
        bare: nothing is added to the sums, and they have no activation: a dense convolution writes
            zeros to the unset pixels, and does not read the others again.
    """

    platform: str
    x_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    shape: tuple[int, int, int]
    dtype: str
    itemsize: int
    geometry: Geometry
    precision: str
    tiles: tuple[Pair, ...]
    align: str = "grid"
    may_overflow: bool = False
    masked_input: bool = False
    fills: bool = True
    own: bool = False
    asked: str = ""
    bare: bool = False

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        kh, kw, per_group, outputs = self.kernel_shape
        features: dict[str, float] = {
            "pixels": math.prod(self.shape),
            "taps": kh * kw,
            "channels": per_group,
            "outputs": outputs,
            "groups": self.geometry.groups,
            "stride": self.geometry.strides[0] * self.geometry.strides[1],
        }
        highest = self.dtype == "float32" and self.precision == "highest"
        dtype = "highest" if highest else self.dtype
        n_tiles = self.tile_counts[0]
        return Problem(OP, self.platform, dtype, features, n_tiles, self.own, self.asked)

    @property
    def tile_counts(self) -> tuple[int, ...]:
        """How many tiles a full mask has, list by list."""
        images, height, width = self.shape
        return tuple(images * -(-height // th) * -(-width // tw) for th, tw in self.tiles)

    def sides(self, tile: Pair) -> Pair:
        """A tile as the handlers take it."""
        return tile_sides(tile, self.shape)


def tile_sides(tile: Pair, shape: tuple[int, int, int]) -> Pair:
    """The tile as the handlers take it: where it is larger than the image, as large as that and a
    multiple of 8, which lists the same.
    """
    (th, tw), (_, height, width) = tile, shape
    return min(th, max(8, -(-height // 8) * 8)), min(tw, max(8, -(-width // 8) * 8))
