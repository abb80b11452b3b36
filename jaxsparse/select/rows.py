"""The rows of a tuning table, each with the limits of its fields."""

import itertools
import math

import msgspec

#: What a table may hold: each rung of a ladder is a branch that is compiled.
MAX_RUNGS = 64
MOST_RATE = 1e12


def _least(name: str, least: float, value: float) -> None:
    if not least <= value < math.inf:
        raise ValueError(f"{name} is {value}; it takes a finite number of {least} or more")


class Rung(msgspec.Struct, frozen=True):
    """Run `variant` while the density of the index is at most `up_to`."""

    up_to: float
    variant: str

    def __post_init__(self) -> None:
        _least("up_to", 0, self.up_to)
        if not self.variant:
            raise ValueError("variant is empty; it takes a variant's name")


class Entry(msgspec.Struct, frozen=True):
    """One measured problem: its features and the ladder found for it.

    `static` is the variant taken when the density is not known at trace time.
    """

    op: str
    dtype: str
    features: dict[str, float]
    static: str
    ladder: tuple[Rung, ...]

    def __post_init__(self) -> None:
        if not self.static:
            raise ValueError("static is empty; it takes a variant's name")
        if len(self.ladder) > MAX_RUNGS:
            raise ValueError(f"ladder has {len(self.ladder)} rungs; it takes {MAX_RUNGS} at most")
        for before, after in itertools.pairwise(self.ladder):
            if before.up_to > after.up_to:
                raise ValueError(f"ladder: up_to falls from {before.up_to} to {after.up_to}")
        for name, value in self.features.items():
            _least(f"features[{name!r}]", 0, value)

    def __hash__(self) -> int:
        return hash((self.op, self.dtype, tuple(sorted(self.features.items())), self.ladder))


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a variant costs, in microseconds: `start` a call, `step` a step of work and `tail` a
    wave of it, however full; `row_step` a step, but half for half a wave; `fill` a megabyte of the
    result that no product writes. The op says what its steps and waves are, and what `shape` of
    problem this was measured on: () serves every shape.
    """

    op: str
    dtype: str
    variant: str
    start: float
    step: float
    tail: float
    row_step: float = 0.0
    fill: float = 0.0
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("start", "step", "tail", "row_step", "fill"):
            _least(name, -MOST_RATE, getattr(self, name))
        for size in self.shape:
            _least("shape", 0, size)


class Constant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of an op's costs or rules that was measured, or several that belong together.

    `shape` is the class of problems that it holds for, "" all; so is `dtype`.
    """

    op: str
    name: str
    value: tuple[float, ...]
    shape: str = ""
    dtype: str = ""

    def __post_init__(self) -> None:
        for one in self.value:
            _least("value", -MOST_RATE, one)
