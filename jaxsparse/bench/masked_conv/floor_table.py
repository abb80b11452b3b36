"""Rows of masked_conv against dense convolutions and the floor, and their tables."""

import itertools
from collections.abc import Callable, Sequence

import msgspec

from jaxsparse.bench.report.provenance import Provenance

HEADS = ("mask", "pixels", "8x8 tiles", "us", "over XLA", "of the floor", "cut kept", "variant")


class FloorRow(msgspec.Struct, frozen=True):
    """One case on masks of one kind and density. Times are GPU time a call, in microseconds.

    Attributes:
        case: the problem's name.
        dtype: "bfloat16" or "float32" (TF32).
        mask: the kind of mask, "full" at density 1.
        asked: the density that was asked for.
        pixels: share of active pixels.
        tiles: share of 8 x 8 tiles that hold one.
        xla_us: XLA's dense convolution.
        torch_us: torch's, cuDNN on channels_last.
        ours_us: the op, an index for every two calls included.
        spread: distance of the quartiles of ours over its median.
        floor_us: of the same masks.
        chosen: the variant that the device chose on the first mask.
        error: of ours, the worst over the largest value.
        correct: whether every output of every timed call was right, dense ones included.
    """

    case: str
    dtype: str
    mask: str
    asked: float
    pixels: float
    tiles: float
    xla_us: float
    torch_us: float
    ours_us: float
    spread: float
    floor_us: float
    chosen: str
    error: float
    correct: bool

    @property
    def dense_us(self) -> float:
        """The faster of the dense ones."""
        return min(self.xla_us, self.torch_us)

    @property
    def of_floor(self) -> float:
        """Share of the floor that is reached."""
        return self.floor_us / self.ours_us

    @property
    def cut(self) -> float | None:
        """Time saved over XLA's dense convolution, as a share of the multiply-adds that are not
        done; None at density 1.
        """
        if self.pixels > 0.999:
            return None
        return (1 - self.ours_us / self.xla_us) / (1 - self.pixels)

    def line(self) -> str:
        """A short line of everything."""
        cut = "" if self.cut is None else f" cut {self.cut:.0%}"
        return (
            f"{self.case} {self.dtype} {self.mask} {self.pixels:.3f}/{self.tiles:.3f}"
            f" xla {self.xla_us:.1f} torch {self.torch_us:.1f} ours {self.ours_us:.1f}"
            f" ±{50 * self.spread:.0f}% {self.xla_us / self.ours_us:.2f}x"
            f" {self.torch_us / self.ours_us:.2f}x floor {self.floor_us:.1f}"
            f" {self.of_floor:.0%}{cut}"
            f" {self.chosen} {self.error:.1e}{'' if self.correct else ' WRONG'}"
        )


class Measured(msgspec.Struct, frozen=True):
    """The rows of one run, and where they were measured."""

    where: Provenance
    rows: tuple[FloorRow, ...]


def to_markdown(files: Sequence[Measured]) -> str:
    """A table for each case and dtype: a line a kind of mask, the densities one after the other; a
    later file's rows take an earlier one's place.
    """
    rows: dict[tuple[str, str, str, float], FloorRow] = {}
    for file in files:
        rows.update({(r.dtype, r.case, r.mask, r.asked): r for r in file.rows})
    lines = []
    ordered = sorted(rows.values(), key=lambda r: (r.dtype, r.case))
    for (dtype, case), group in itertools.groupby(ordered, lambda r: (r.dtype, r.case)):
        part = list(group)
        lines += [f"## {case}, {'TF32' if dtype == 'float32' else dtype}", "", _dense(part), ""]
        lines += [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
        masks: dict[str, list[FloorRow]] = {}
        for row in part:
            masks.setdefault(row.mask, []).append(row)
        lines += [
            _line(mask, sorted(found, key=lambda r: r.asked)) for mask, found in masks.items()
        ]
        lines.append("")
    return "\n".join(lines)


def _dense(rows: Sequence[FloorRow]) -> str:
    """What dense convolutions take beside these rows."""
    worst = max(r.error for r in rows)
    return (
        f"XLA dense {rows[0].xla_us:.1f} us, torch {rows[0].torch_us:.1f} us. "
        f"Largest error {worst:.1e}."
    )


def _line(mask: str, rows: Sequence[FloorRow]) -> str:
    """One kind of mask, its densities in each cell."""

    def each(show: Callable[[FloorRow], str]) -> str:
        return " / ".join(map(show, rows))

    cells = [
        mask,
        each(lambda r: f"{r.pixels:.2f}"),
        each(lambda r: f"{r.tiles:.2f}"),
        each(lambda r: f"{r.ours_us:.1f}{'' if r.correct else ' wrong'}"),
        each(lambda r: f"{r.xla_us / r.ours_us:.2f}x"),
        each(lambda r: f"{r.of_floor:.0%}"),
        each(lambda r: "" if r.cut is None else f"{r.cut:.0%}"),
        ", ".join(dict.fromkeys(r.chosen for r in rows)),
    ]
    return f"| {' | '.join(cells)} |"
