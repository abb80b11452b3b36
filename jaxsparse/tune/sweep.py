"""What every candidate of a masked convolution takes on many masks: the measurements that rates are
fitted to, and that the choice is judged by.

Candidates stand beside each other in one call, as they do where the device chooses, and the number
of the one to run is data: a few compilations serve every candidate and mask.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from jaxsparse.bench.masked_conv.probe import ConvProbe
from jaxsparse.bench.measure.chain import tolerance
from jaxsparse.index.chosen import ChosenIndex, no_index
from jaxsparse.index.portfolio import portfolio_index
from jaxsparse.index.types import TileIndex
from jaxsparse.ops import masked_conv
from jaxsparse.ops.masked_conv import device as device
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.run import problem_of as conv_problem
from jaxsparse.select.config import config
from jaxsparse.select.costs import COLUMNS, EVERY, Candidate
from jaxsparse.select.masked_conv import portfolio as portfolio
from jaxsparse.select.masked_conv.problem import ConvProblem
from jaxsparse.select.masked_conv.reasons import half_empty, reason_against
from jaxsparse.select.table import DENSE
from jaxsparse.select.variants import table
from jaxsparse.testing import ConvCase

#: The tile of each list: of gathered pixels, and of boxes.
TILES = ((1, 1), (8, 8))
BOXES = 1


class Sample(msgspec.Struct, frozen=True):
    """One candidate on one mask.

    Attributes:
        case: the problem's name.
        dtype: "bfloat16", "float16" or "float32" (TF32).
        mask: the kind of mask.
        seed: of the mask.
        taps, channels, outputs, stride: of the convolution, as rates are known by.
        counts: active tiles of each list, single pixels first.
        tiles: all tiles of each list.
        variant: its name; "dense" is XLA's convolution and the mask.
        list: the list that it visits, or -1 for every tile.
        us: GPU time of a call, its median; the index was built before.
        fills: the call has no `base`: it writes zeros where the mask is unset.
    """

    case: str
    dtype: str
    mask: str
    seed: int
    taps: int
    channels: int
    outputs: int
    stride: int
    counts: tuple[int, ...]
    tiles: tuple[int, ...]
    variant: str
    list: int
    us: float
    fills: bool = True


def params_of(case: ConvCase, dtype: str) -> ConvParams:
    """What is static about a call of the case."""
    return ConvParams(case.geometry, None, "default", dtype)


def problem_of(case: ConvCase, dtype: str) -> ConvProblem:
    """What the choice for a call of the case depends on, where both lists are given."""
    p, index = params_of(case, dtype), no_index(case.mask_shape, TILES)
    x = jax.ShapeDtypeStruct(case.x_shape, dtype)
    kernel = jax.ShapeDtypeStruct(case.kernel_shape, dtype)
    return conv_problem(p, "cuda", x, kernel, index)


def _lists(mask: jax.Array) -> Any:
    return portfolio_index(mask, TILES, jnp.zeros((1, len(COLUMNS)), jnp.float32)).indices


def _index(lists: Any, choice: Any = None, candidates: tuple[Candidate, ...] = ()) -> ChosenIndex:
    first, *others = lists
    fields = {f.name: getattr(first, f.name) for f in dataclasses.fields(first)}
    return ChosenIndex(**fields, choice=choice, others=tuple(others), candidates=candidates)


def all_candidates(case: ConvCase, dtype: str) -> list[Candidate]:
    """Every candidate that a call which chooses may hold: of each variant one over its list and,
    unless it splits K, one over every tile. Their costs are not known. mma.sync rows only where
    nothing else takes the problem: they would not stand beside other rows.
    """
    problem = problem_of(case, dtype)
    rows, found = table("masked_conv", "cuda"), []
    for row in rows.values():
        if not row.fields.get("tile_m") or not portfolio.held(row):
            continue
        place = BOXES if row.fields["box"] else 0
        if place and min(case.mask_shape[1:]) < TILES[place][0]:
            continue
        if half_empty(row, case.outputs) or reason_against(problem, row.name, TILES[place]):
            continue
        places = (place,) if portfolio.splits(row) else (place, EVERY)
        found += [Candidate(row.name, row.number, at, _unknown(at)) for at in places]
    return [c for c in found if not rows[c.variant].fields.get("mma")] or found


def _unknown(place: int) -> tuple[float, float, float, float, float]:
    return 0.0, 0.0, float(place), 0.0, 0.0


def grouped(candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Calls of at most eight candidates; those that split K apart, in clusters of a size each."""
    rows = table("masked_conv", "cuda")
    found = []
    for parts in sorted({portfolio.parts(rows[c.variant]) for c in candidates}):
        part = [c for c in candidates if portfolio.parts(rows[c.variant]) == parts]
        most = portfolio.MOST
        found += [tuple(part[i : i + most]) for i in range(0, len(part), most)]
    return found


class Sweep:
    """The candidates of one problem, compiled.

    Args:
        probe: of the problem.
        base: time calls with a `base` in their result's buffer, of the candidates only; else dense
            is timed, too, on the first mask.
    """

    def __init__(self, probe: ConvProbe, *, base: bool = False):
        self.probe = probe
        self.base = base
        case, dtype = probe.case, probe.dtype
        self._p = params_of(case, dtype)
        self._list = jax.jit(_lists)
        self.groups = grouped(all_candidates(case, dtype))
        self._chains: list[Any] = []
        self._dense: Any = None
        self._whole: dict[Candidate | str, float] = {}

    def compile(self) -> None:
        """Compile every call."""
        lists = self._list(jnp.zeros(self.probe.case.mask_shape, bool))
        self._chains = [
            self.probe.compile(
                functools.partial(self._call, group), (lists, jnp.int32(0)), base=self.base
            )
            for group in self.groups
        ]
        if not self.base:
            with config(variant=DENSE):
                self._dense = self.probe.compile(self._whole_image, lists[0])

    def _call(
        self,
        group: tuple[Candidate, ...],
        i: int,
        x: jax.Array,
        kernel: jax.Array,
        extra: Any,
        base: jax.Array | None = None,
    ) -> jax.Array:
        lists, choice = extra
        index = _index(lists, choice, group)
        return device.forward(self._p, "cuda", group, *Operands(x, kernel, index, base=base))

    def _whole_image(self, i: int, x: jax.Array, kernel: jax.Array, index: TileIndex) -> jax.Array:
        return masked_conv(x, kernel, index, **self.probe.case.options)

    def samples(self, mask: np.ndarray, kind: str, seed: int, *, repeat: int) -> Iterator[Sample]:
        """Time every candidate on one mask, `repeat` runs each; what gathers every pixel on the
        first mask only, whose time stands for all: let that be the fullest.

        Raises:
            ValueError: for a wrong result.
        """
        lists = jax.block_until_ready(self._list(jnp.asarray(mask)))
        make = functools.partial(self._sample, lists, kind, seed)
        for group, chain in zip(self.groups, self._chains, strict=True):
            for number, candidate in enumerate(group):
                us = self._whole.get(candidate)
                if us is None:
                    us = self._time(chain, (lists, jnp.int32(number)), mask, repeat, candidate.name)
                if candidate.list == EVERY and not self._boxes(candidate):
                    self._whole[candidate] = us
                yield make(candidate.variant, candidate.list, us)
        if self._dense is not None:
            if DENSE not in self._whole:
                self._whole[DENSE] = self._time(self._dense, lists[0], mask, repeat, DENSE)
            yield make(DENSE, 0, self._whole[DENSE])

    def _boxes(self, candidate: Candidate) -> bool:
        return bool(table("masked_conv", "cuda")[candidate.variant].fields["box"])

    def _time(self, chain: Any, extra: Any, mask: np.ndarray, repeat: int, name: str) -> float:
        masks = [mask] * self.probe.calls
        took, error = self.probe.time(chain, extra, masks, samples=repeat, everywhere=not self.base)
        if not error <= tolerance(self.probe.dtype, "cuda"):
            raise ValueError(f"{self.probe.case.name}, {name}: wrong by {error:.2g}")
        return float(np.median(took))

    def _sample(
        self, lists: Any, kind: str, seed: int, variant: str, place: int, us: float
    ) -> Sample:
        case = self.probe.case
        return Sample(
            case=case.name,
            dtype=self.probe.dtype,
            mask=kind,
            seed=seed,
            taps=case.kernel[0] * case.kernel[1],
            channels=case.kernel_shape[2],
            outputs=case.outputs,
            stride=case.strides[0] * case.strides[1],
            counts=tuple(int(like.count) for like in lists),
            tiles=tuple(like.n_tiles for like in lists),
            variant=variant,
            list=place,
            us=us,
            fills=not self.base,
        )
