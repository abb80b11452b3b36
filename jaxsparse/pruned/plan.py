"""`Plan`: what is static of a pruned weight."""

import dataclasses

import numpy as np

from jaxsparse.core.geometry import Geometry
from jaxsparse.core.types import Kind
from jaxsparse.pruned.pattern import Pattern


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A measured choice: for calls like this one, run this executor with these tunables."""

    platform: str
    x_shape: tuple[int, ...]
    dtype: str
    geometry: Geometry | None
    channels_first: bool
    executor: str
    candidate: tuple[int, ...] | None
    microseconds: float
    precision: str = "default"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is static of a pruned weight: pattern, kind, measured choices. Hashable by content."""

    pattern: Pattern
    kind: Kind
    tuned: tuple[Tuned, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the dense weight: [k, n], or [kh, kw, C/groups, O]."""
        p = self.pattern
        if p.window is None or self.kind == "matmul":
            return p.n_in, p.n_out
        return *p.window, p.channels // p.groups, p.n_out


def dense_index(pattern: Pattern, shape: tuple[int, ...]) -> np.ndarray:
    """int[entries]: where each entry lies in the flat dense weight of `shape`."""
    rows = pattern.rows.astype(np.int64)
    if len(shape) == 2:
        flat = pattern.indices * np.int64(shape[1]) + rows
    else:
        _, kw, per_group, outputs = shape
        channel, ky, kx = pattern.taps_of()
        flat = ((ky.astype(np.int64) * kw + kx) * per_group + channel % per_group) * outputs + rows
    return flat if flat.max(initial=0) >= 2**31 else flat.astype(np.int32)
