"""The operands of one `masked_conv`, and the masks of channels among them."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool

from jaxsparse.core.masks import check_mask
from jaxsparse.index import TileIndex


class Channels(NamedTuple):
    """Masks of the input and output channels, bool[C] and bool[O]; None: every channel."""

    inputs: jax.Array | None = None
    outputs: jax.Array | None = None

    def turned(self) -> "Channels":
        """The masks for the gradient of x, whose inputs are the outputs."""
        return Channels(self.outputs, self.inputs)

    def masked(self) -> bool:
        """Whether there is a mask of channels."""
        return any(mask is not None for mask in self)

    def computed(self, cover: Bool[Array, "B Ho Wo"]) -> Bool[Array, "B Ho Wo O"]:
        """Which results are computed; the last axis is 1 without a mask of the outputs."""
        whole = cover[..., None]
        return whole if self.outputs is None else whole & self.outputs


#: No mask of channels.
EVERY = Channels()


class Operands(NamedTuple):
    """What one call takes: x [B, H, W, C], the kernel [kh, kw, C/g, O], the index of the active
    outputs, and what may be absent: a bias [O], the base and the residual [B, Ho, Wo, O], a mask of
    x's pixels as words, and masks of channels.
    """

    x: jax.Array
    kernel: jax.Array
    tiles: TileIndex
    bias: jax.Array | None = None
    base: jax.Array | None = None
    residual: jax.Array | None = None
    x_words: jax.Array | None = None
    channels: Channels = EVERY


def check_channels(
    in_channels: Any, out_channels: Any, groups: int, kernel_shape: tuple[int, ...]
) -> Channels:
    """The masks of the channels of a kernel [kh, kw, C, O].

    Raises:
        TypeError, ValueError: for groups other than 1, and for a mask that is not bool or has
            another number of channels, naming the argument.
    """
    given = {"in_channels": in_channels, "out_channels": out_channels}
    found: list[jax.Array | None] = []
    for (name, mask), n, what in zip(given.items(), kernel_shape[2:], "xk", strict=True):
        if mask is None:
            found.append(None)
            continue
        if groups != 1:
            raise ValueError(
                f"{name} takes groups=1, not {groups}: the outputs of a group read the channels of "
                "that group only, so channels cannot be permuted"
            )
        of = {"x": "the channels of x are", "k": "kernel's outputs are"}[what]
        found.append(check_mask(name, mask, (n,), fixed=1, of=of))
    return Channels(*found)
