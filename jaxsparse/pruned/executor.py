"""What an executor is: one way of running a pattern, with arrays that it packs at trace time."""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned.pattern import Pattern


def _absent() -> np.ndarray:
    return np.zeros(0, np.int32)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything static about one call; `x_shape` is [m, k], or [B, H, W, C] in that order whatever
    the layout.
    """

    pattern: Pattern
    platform: str
    x_shape: tuple[int, ...]
    dtype: str
    out_dtype: str
    precision: str
    geometry: Geometry | None = None
    channels_first: bool = False

    @property
    def key(self) -> Hashable:
        """Equal where problems are; it does not keep the pattern alive."""
        layout = self.geometry, self.channels_first
        types = self.dtype, self.out_dtype, self.precision
        return self.pattern.digest, self.platform, self.x_shape, *types, *layout

    @property
    def kind(self) -> str:
        """ "matmul" or "conv"."""
        return "matmul" if self.geometry is None else "conv"

    @property
    def out_hw(self) -> tuple[int, int]:
        """Height and width of the result; of a product (1, m)."""
        if self.geometry is None:
            return 1, self.x_shape[0]
        return self.geometry.out_size(self.x_shape[1:3], self.pattern.window or (1, 1))

    @property
    def positions(self) -> int:
        """Output positions, over all images: the other dimension of the product."""
        height, width = self.out_hw
        return (1 if self.geometry is None else self.x_shape[0]) * height * width


@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """The packed operands and attributes of a handler (docs/contract.md).

    `order` names the entry that each packed value is (-1: a zero); None where the executor takes
    the pattern's own order. `value_dtype` None means x's dtype. `owner`, of an executor that needs
    the values, lives in this process and as long as a compiled function that holds the call.
    """

    executor: int
    starts: np.ndarray = dataclasses.field(default_factory=_absent)
    indices: np.ndarray = dataclasses.field(default_factory=_absent)
    rows: np.ndarray = dataclasses.field(default_factory=_absent)
    extra: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint8))
    order: np.ndarray | None = None
    value_dtype: str | None = "float32"
    tile: int = 0
    block: int = 0
    parts: int = 0
    code: int = 0
    scratch: int = 0
    owner: Any = None

    @property
    def nbytes(self) -> int:
        """Of the arrays, and of the owner where it says."""
        arrays = (self.starts, self.indices, self.rows, self.extra, self.order, self.owner)
        return sum(getattr(a, "nbytes", 0) for a in arrays)


class Executor(NamedTuple):
    """One way to run a pattern on a platform.

    Attributes:
        name: what `js.config(variant=)` and `js.explain` call it.
        platform: "cpu" or "cuda".
        reason_against: why it cannot run a problem, or None.
        cost: estimated microseconds: executors are tried in ascending order where this call was
            not tuned.
        pack: the operands for a problem; the second argument is one of its candidates, or None for
            its own choice; where `needs_values`, the third is the kept values, float32[entries].
            Called again where what it gave is no longer kept.
        candidates: tunables worth measuring, the default first: None, or tuples of ints that
            `pack` checks (they may come from a file).
        won: whether it was measured to be faster than dense on problems of this kind; what was not
            comes after dense until this very call is tuned.
        needs_values: it builds the values in, so it only runs weights that are constants, and what
            it packs may only run in this process.
    """

    name: str
    platform: str
    reason_against: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    pack: Callable[..., Packed]
    candidates: Callable[[Problem], list[Any]] = lambda problem: [None]
    won: Callable[[Problem], bool] = lambda problem: True
    needs_values: bool = False
