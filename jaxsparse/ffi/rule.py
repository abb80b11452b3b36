"""What a mesh may split of an op's arrays: `Rule`, and the mesh axes that each factor gets.

A rule names the factors of every axis as `jax.experimental.custom_partitioning` does: "b h w c". An
axis "(b t)" is b blocks of t, "(b 4)" b blocks of four; "." is an axis that no shard may cut. Axes
of one factor are cut alike.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jax.sharding import PartitionSpec

Axes = tuple[str, ...]
WHOLE = "."


@dataclasses.dataclass(frozen=True)
class Rule:
    """How an op may be split over a mesh.

    Attributes:
        op: as the user called it.
        operands: the factors of each argument; None: an argument (any pytree) that a shard does not
            get, because it makes its own.
        results: the factors of each result. A result without a factor that is split is a sum over
            its shards (bool: any of them).
        splits: the factors that may be split.
        names: the user's name for each operand.
        from_end: count the axes of operands from the last, -1: the user's have more leading axes.
        dtype: of the float results, which are rounded to it after they are summed; None keeps that
            of a shard's.
        least: results of which the least of all shards is taken, not the sum.
        why: factor -> why it is not split and what to do instead.
        shared: factor -> factors whose mesh axes it may have, too, because the shards exchange
            what they need. A result that has one of them is not summed over those axes.
        told: such a factor -> what the shards exchange over its axes.
        clash: factor -> what to do where another one has its mesh axes.
    """

    op: str
    operands: tuple[str | None, ...]
    results: tuple[str, ...]
    splits: tuple[str, ...]
    names: tuple[str, ...]
    from_end: bool = False
    dtype: str | None = None
    least: frozenset[int] = frozenset()
    why: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    told: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clash: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Array(NamedTuple):
    """An operand or a result as a rule sees it: `spec` holds the mesh axes of each of its axes."""

    name: str
    factors: tuple[Axes, ...]
    shape: tuple[int, ...]
    spec: tuple[Axes, ...]


class Cut(NamedTuple):
    """An axis that is sharded over mesh axes and has to be whole in every shard, with the reason;
    `known`: it must be, whatever the other operands are.
    """

    name: str
    axis: int
    rank: int
    axes: Axes
    reason: str
    known: bool

    def place(self, from_end: bool) -> str:
        """The axis, in the user's words."""
        axis = self.axis - self.rank if from_end else self.axis
        over = ", ".join(map(repr, self.axes))
        return f"{self.name} axis {axis} is sharded over mesh axis {over}"


def parse(text: str) -> tuple[Axes, ...]:
    """The factors of each axis of "b (h w) ."."""
    found = re.findall(r"\(([^)]*)\)|(\S+)", text)
    return tuple(tuple((many or one).split()) for many, one in found)


def spec_of(spec: Sequence[object], rank: int) -> tuple[Axes, ...]:
    """A `PartitionSpec` as the mesh axes of each axis."""
    entries = [*spec, *[None] * (rank - len(spec))]
    return tuple(
        (e,) if isinstance(e, str) else tuple(e) if isinstance(e, tuple) else () for e in entries
    )


def assign(
    rule: Rule, operands: Sequence[Array], results: Sequence[Array], sizes: Mapping[str, int]
) -> tuple[dict[str, Axes], list[Cut]]:
    """The mesh axes of each factor that is split, and what has to be gathered for that.

    An operand comes before the operands after it, and before the results.
    """
    everything = [*operands, *results]
    chosen: dict[str, Axes] = {}
    for array in everything:
        for factor, axes, _ in _sharded(array):
            if (
                factor not in rule.splits
                or factor in chosen
                or not _free(rule, factor, axes, chosen)
            ):
                continue
            if not _uneven(factor, math.prod(sizes[a] for a in axes), everything):
                chosen[factor] = axes
    cuts = []
    for array in operands:
        for factor, axes, i in _sharded(array):
            if chosen.get(factor) == axes:
                continue
            reason, known = _reason(rule, factor, axes, chosen, sizes, everything)
            cuts.append(Cut(array.name, i, len(array.shape), axes, reason, known))
    return chosen, cuts


def _free(rule: Rule, factor: str, axes: Axes, chosen: Mapping[str, Axes]) -> bool:
    """Whether no factor has any of these mesh axes, or those that may share them have all."""
    partners = rule.shared.get(factor, ())
    taken = {a for other, own in chosen.items() if other not in partners for a in own}
    lent = {a for other in partners for a in chosen.get(other, ())}
    return not taken & {*axes} and ({*axes} <= lent or not lent & {*axes})


def exchanged(rule: Rule, chosen: Mapping[str, Axes]) -> list[tuple[str, Axes]]:
    """The factors that share mesh axes with others, and the axes."""
    return [
        (factor, chosen[factor])
        for factor, partners in rule.shared.items()
        if {*chosen.get(factor, ())} & {a for other in partners for a in chosen.get(other, ())}
    ]


def spec_for(factors: tuple[Axes, ...], chosen: Mapping[str, Axes]) -> PartitionSpec:
    """The spec of an array under these mesh axes."""
    return PartitionSpec(*(chosen.get(f[0]) or None if f else None for f in factors))


def size_of(factor: str, axes: Sequence[tuple[Axes, int]]) -> int | None:
    """The size of a factor, from the axes that say it."""
    for factors, size in axes:
        if factors[0] == factor and (len(factors) == 1 or factors[1].isdigit()):
            return size if len(factors) == 1 else size // int(factors[1])
    return None


def divides_in_part(size: int, lengths: Sequence[int], axes: Iterable[int]) -> bool:
    """Whether some mesh axes of these sizes together divide one of the lengths, but one of them has
    a divisor in common with `size`, a factor of that length, and does not divide it (4 devices, 14
    blocks). Shardy would then split the factor over a part of a mesh axis, which JAX's
    `custom_partitioning` cannot express.
    """
    axes = list(axes)
    orders = (o for n in range(1, len(axes) + 1) for o in itertools.permutations(axes, n))
    return any(
        _in_part(size, order)
        for order in orders
        if any(length % math.prod(order) == 0 for length in lengths)
    )


def _in_part(size: int, axes: Sequence[int]) -> bool:
    for n in axes:
        if size % n:
            return math.gcd(size, n) > 1
        size //= n
    return False


def sums_over(factors: tuple[Axes, ...], chosen: Mapping[str, Axes]) -> Axes:
    """The mesh axes over which a result is still to be summed."""
    own = {a for axis in factors for f in axis for a in chosen.get(f, ())}
    return tuple(dict.fromkeys(a for axes in chosen.values() for a in axes if a not in own))


def _sharded(array: Array) -> Iterator[tuple[str, Axes, int]]:
    """Of each sharded axis: its major factor, its mesh axes, and its place."""
    for i, (factors, axes) in enumerate(zip(array.factors, array.spec, strict=True)):
        if axes:
            yield (factors[0] if factors else WHOLE), axes, i


def _uneven(factor: str, shards: int, arrays: Sequence[Array]) -> int:
    """The size of an axis of this factor that so many shards do not divide; 0: there is none."""
    axes = [pair for array in arrays for pair in zip(array.factors, array.shape, strict=True)]
    size = size_of(factor, axes) or shards
    return size if size % shards else 0


def _reason(
    rule: Rule,
    factor: str,
    axes: Axes,
    chosen: Mapping[str, Axes],
    sizes: Mapping[str, int],
    arrays: Sequence[Array],
) -> tuple[str, bool]:
    if factor in rule.why:
        return rule.why[factor], True
    if factor not in rule.splits:
        return f"{rule.op} needs the whole axis in every shard", True
    shards = math.prod(sizes[a] for a in axes)
    uneven = _uneven(factor, shards, arrays)
    if uneven:
        return f"{shards} shards do not divide {uneven}", True
    for array in arrays:
        for other, own, i in _sharded(array):
            if chosen.get(other) == own and (other == factor or {*own} & {*axes}):
                over = ", ".join(map(repr, own))
                taken = f"{array.name} axis {i} is split over {over}"
                to_do = rule.clash.get(factor)
                return (taken, False) if to_do is None else (f"{taken}: {to_do}", True)
    return "other operands are split otherwise", False


def refusal(rule: Rule, cut: Cut) -> str:
    """What is said of a call that Explicit axes would split in this place."""
    name = cut.name
    return (
        f"{rule.op}: {cut.place(rule.from_end)}, but {cut.reason}: reshard it first, {name} = "
        f"jax.sharding.reshard({name}, spec) with None on that axis, or call the op inside of "
        "jax.shard_map"
    )
