"""What a choice is made for."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Problem:
    """A call as a tuning table and a policy (`js.config(policy=)`) see it.

    Attributes:
        op: what chooses, one of those of `js.variants`.
        platform: "cpu" or "cuda".
        dtype: of the operands; "highest" for float32 that is not multiplied in TF32.
        features: numbers that describe the shape, by name. A convolution: pixels of the result,
            taps, channels and outputs of a group, groups, stride. A product: rows, depth, outputs.
        n_tiles: the number of tiles of a full mask: count / n_tiles is the density.
        own: whether an implementation was selected by name, so that a table does not put XLA's
            dense operation in its place.
        asked: the op that the user called, where that is not `op` but runs as it.
    """

    op: str
    platform: str
    dtype: str
    features: Mapping[str, float] = dataclasses.field(hash=False)
    n_tiles: int = 0
    own: bool = False
    asked: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """What the rates of an op without waves are known by: its features."""
        return tuple(int(self.features[name]) for name in sorted(self.features))

    @property
    def called(self) -> str:
        """The op that the user called."""
        return self.asked or self.op
