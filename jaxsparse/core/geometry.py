"""The geometry of a convolution: what is static about it, its result's shape, and its transpose."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jaxsparse.core.integers import check_static, static_int

Pair = tuple[int, int]


class Window(NamedTuple):
    """What a convolution reads: input pixel n of an axis, by output pixel o through tap k, where
    n * lhs_dilation + pad = o * stride + k * dilation. `pads` are (top, left), and may be negative.
    """

    taps: Pair
    strides: Pair
    pads: Pair
    dilation: Pair
    lhs_dilation: Pair


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Window of a 2-D convolution; `padding` is ((top, bottom), (left, right)), may be negative."""

    strides: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    lhs_dilation: Pair
    groups: int

    def window(self, kernel_hw: Pair) -> Window:
        """What it reads, without the size of its input."""
        (top, _), (left, _) = self.padding
        return Window(kernel_hw, self.strides, (top, left), self.dilation, self.lhs_dilation)

    def has_gaps(self, kernel_hw: Pair) -> bool:
        """Whether pixels of an input may lie between the taps of a window, or between windows of
        several taps.
        """
        apart = any(s > k for s, k in zip(self.strides, kernel_hw, strict=True))
        return self.dilation != (1, 1) or (apart and kernel_hw != (1, 1))

    def out_size(self, in_hw: Sequence[int], kernel_hw: Sequence[int]) -> Pair:
        """Height and width of the result."""
        sizes = []
        for n, k, s, p, d, up in zip(
            in_hw,
            kernel_hw,
            self.strides,
            self.padding,
            self.dilation,
            self.lhs_dilation,
            strict=True,
        ):
            spread = (n - 1) * up + 1 if n else 0
            room = spread + p[0] + p[1] - ((k - 1) * d + 1 if k else 0)
            sizes.append(room // s + 1 if room >= 0 else 0)
        return sizes[0], sizes[1]

    def transposed(
        self, in_hw: Sequence[int], kernel_hw: Sequence[int], out_hw: Sequence[int]
    ) -> "Geometry":
        """The convolution of the cotangent with the flipped kernel that gives the gradient of the
        input.
        """
        padding = []
        for n, k, s, p, d, up, m in zip(
            in_hw,
            kernel_hw,
            self.strides,
            self.padding,
            self.dilation,
            self.lhs_dilation,
            out_hw,
            strict=True,
        ):
            low = (k - 1) * d - p[0]
            # The result has n rows at stride `up` over the cotangent spread by `s`.
            high = (n - 1) * up + 1 + (k - 1) * d - low - ((m - 1) * s + 1 if m else 0)
            padding.append((low, high))
        return Geometry(
            self.lhs_dilation,
            (padding[0], padding[1]),
            self.dilation,
            self.strides,
            self.groups,
        )


#: Of strides, dilations and pads, as the handlers of convolutions take them
#: (contracts/masked_conv.toml, contracts/pruned.toml).
MOST_STEP, MOST_PAD = 2**30, 2**40


def check_steps(geometry: Geometry) -> None:
    """Refuse strides, dilations and pads that no handler takes.

    Raises:
        ValueError: naming the argument.
    """
    for name, steps in (("strides", geometry.strides), ("dilation", geometry.dilation)):
        if max(steps) > MOST_STEP:
            raise ValueError(f"{name}={steps}; it takes {MOST_STEP} at most")
    if max(abs(pad) for side in geometry.padding for pad in side) > MOST_PAD:
        raise ValueError(f"padding={geometry.padding}; it takes {MOST_PAD} pixels at most")


def pair(value: int | Sequence[int], name: str, *, least: int = 1) -> Pair:
    """One int, or two, each at least `least`.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    try:
        first, second = _twice(value)
    except (TypeError, ValueError):
        check_static(name, value)
        raise TypeError(f"{name} takes an int or two ints, not {value!r}") from None
    if min(first, second) < least:
        raise ValueError(f"{name}={value!r}: each must be at least {least}")
    return first, second


def _twice(value: Any) -> Pair:
    """One int as two, or two ints; TypeError or ValueError for anything else."""
    try:
        both = static_int(value)
    except TypeError:
        first, second = (static_int(v) for v in value)
        return first, second
    return both, both


@functools.lru_cache(maxsize=1024)  # jax.lax takes longer than the other checks of an op
def _named_padding(
    padding: str, in_hw: tuple[int, ...], kernel_hw: Pair, strides: Pair, dilation: Pair
) -> tuple[Pair, Pair]:
    """`resolve_padding` of SAME, VALID or SAME_LOWER."""
    window = [(k - 1) * d + 1 for k, d in zip(kernel_hw, dilation, strict=True)]
    try:
        low_high = jax.lax.padtype_to_pads(in_hw, window, strides, padding.upper())
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"padding={padding!r}; strings are SAME, SAME_LOWER, VALID") from error
    vertical, horizontal = map(_twice, low_high)
    return vertical, horizontal


def resolve_padding(
    padding: Any, in_hw: Sequence[int], kernel_hw: Pair, strides: Pair, dilation: Pair
) -> tuple[Pair, Pair]:
    """SAME, VALID, SAME_LOWER, one int, two ints or two pairs, as ((top, bottom), (left, right)).

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if isinstance(padding, str):
        return _named_padding(padding, tuple(in_hw), kernel_hw, strides, dilation)
    try:
        both = static_int(padding)
        return (both, both), (both, both)
    except TypeError:
        pass
    try:
        vertical, horizontal = map(_twice, padding)
    except (TypeError, ValueError):
        check_static("padding", padding)
        raise TypeError(
            f"padding takes a string, an int, or two (each an int or a pair (low, high)), "
            f"not {padding!r}"
        ) from None
    if any(
        n + low + high < 0 for n, (low, high) in zip(in_hw, (vertical, horizontal), strict=True)
    ):
        raise ValueError(f"padding={padding!r} takes more from x than its {tuple(in_hw)} pixels")
    return vertical, horizontal
