"""Masks of channels: the active channels are gathered into a narrower array, and the convolution
runs at that width.

The input and output channels of a convolution may be permuted (SparDA 3.1; axes m and f of Table
1). The number of active channels is known on the device only, so a call is a `lax.switch` over a
few widths. A branch gathers the active channels of x and the rows and columns of the kernel, runs
the convolution of that width, and scatters its outputs to their channels. Both operands are padded
with zeros up to the width. A value of a channel that is not active is never used.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxsparse.index import TileIndex
from jaxsparse.ops.masked_conv.operands import EVERY, Channels, Operands
from jaxsparse.select.choice import Choice
from jaxsparse.select.explain import Parts

#: The number of widths: the channels in equal steps.
_STEPS = 4
#: Widths are multiples of the first number, or of the third from the second number of channels on.
_MULTIPLE, _FROM, _WIDE_MULTIPLE = 16, 128, 32


def widths(n: int) -> tuple[int, ...]:
    """The widths that a mask of n channels may run at, in ascending order."""
    step = _MULTIPLE if n < _FROM else _WIDE_MULTIPLE
    rounded = (-(-n * quarter // (_STEPS * step)) * step for quarter in range(1, _STEPS + 1))
    return tuple(sorted({min(n, width) for width in rounded}))


def width_of(active: int, n: int) -> int:
    """The width that `active` of n channels run at: the smallest that holds them."""
    return next(width for width in widths(n) if width >= active)


def tell(
    channels: Channels,
    kernel_shape: tuple[int, ...],
    at_width: Callable[[str, int, int], Choice | None],
) -> Parts | None:
    """What `js.explain` reports about the channels of a call; `at_width` gives the choice of an
    implementation at given widths of C and O.
    """
    n, names = kernel_shape[2:], ("in_channels", "out_channels")
    masks = [mask for mask in channels if mask is not None]
    if not masks:
        return None
    at = [i for i, mask in enumerate(channels) if mask is not None]

    def ran(name: str, active: Sequence[int]) -> tuple[Choice | None, str]:
        taken = list(n)
        for i, count in zip(at, active, strict=True):
            # The reference computes them all.
            taken[i] = n[i] if name == "reference" else width_of(count, n[i])
        said = [
            f"{count} of {n[i]} {names[i]} at a width of {taken[i]}"
            for i, count in zip(at, active, strict=True)
        ]
        share = 100 * math.prod(taken) / max(math.prod(n), 1)
        return at_width(name, *taken), f"{', '.join(said)}: {share:.4g} % of the products"

    offered = "; ".join(f"{names[i]} at {', '.join(map(str, widths(n[i])))}" for i in at)
    return Parts(tuple(mask.sum(dtype=jnp.int32) for mask in masks), ran, offered)


def forward(run: Callable[..., jax.Array], *given: Any) -> jax.Array:
    """`run` of `Operands` at the width that holds the active channels, without masks of these."""
    operands = Operands(*given)
    x, kernel, index, bias, base, residual, _, channels = operands
    ins, outs = _axis(channels.inputs, kernel.shape[2]), _axis(channels.outputs, kernel.shape[3])

    def branch(into: int, out_of: int) -> Callable[[], jax.Array]:
        def call() -> jax.Array:
            part = outs.taken(ins.taken(kernel, 2, into), 3, out_of)
            some = x if channels.inputs is None else ins.taken(x, 3, into)
            narrow = operands._replace(x=some, kernel=part, channels=EVERY)
            if channels.outputs is None:
                return run(*narrow)
            added = None if residual is None else outs.taken(residual, 3, out_of)
            shift = None if bias is None else outs.taken(bias, 0, out_of)
            found = run(*narrow._replace(bias=shift, base=None, residual=added))
            found = outs.spread(found, 3, out_of)
            if base is None:  # what is not in the mask is zero
                return jnp.where(channels.outputs, found, jnp.zeros_like(found))
            return jnp.where(channels.computed(index.cover()), found, base)

        return call

    return _switch(ins, outs, branch)


def kernel_gradient(
    run: Callable[..., jax.Array],
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    channels: Channels,
) -> jax.Array:
    """`run` of (x, g, index), the kernel's gradient, at the width that holds the active channels;
    zero elsewhere.
    """
    ins, outs = _axis(channels.inputs, x.shape[3]), _axis(channels.outputs, g.shape[3])

    def branch(into: int, out_of: int) -> Callable[[], jax.Array]:
        def call() -> jax.Array:
            found = run(ins.taken(x, 3, into), outs.taken(g, 3, out_of), index)
            found = outs.spread(ins.spread(found, 2, into), 3, out_of)
            return _kept(found, channels)

        return call

    return _switch(ins, outs, branch)


def forward_of_all(run: Callable[..., jax.Array], *given: Any) -> jax.Array:
    """The definition of `forward`: `run` on all channels, with the inactive ones set to zero."""
    operands = Operands(*given)
    x, channels, base = operands.x, operands.channels, operands.base
    if channels.inputs is not None:
        x = jnp.where(channels.inputs, x, jnp.zeros_like(x))
    kernel = _kept(operands.kernel, channels)
    whole = operands._replace(x=x, kernel=kernel, channels=EVERY)
    if channels.outputs is None:
        return run(*whole)
    found = run(*whole._replace(base=None))
    computed = channels.computed(operands.tiles.cover())
    return jnp.where(computed, found, jnp.zeros_like(found) if base is None else base)


def kernel_gradient_of_all(
    run: Callable[..., jax.Array],
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    channels: Channels,
) -> jax.Array:
    """The definition of `kernel_gradient`."""
    x = x if channels.inputs is None else jnp.where(channels.inputs, x, jnp.zeros_like(x))
    g = g if channels.outputs is None else jnp.where(channels.outputs, g, jnp.zeros_like(g))
    return _kept(run(x, g, index), channels)


def _kept(kernel: jax.Array, channels: Channels) -> jax.Array:
    """A kernel [kh, kw, C, O] with zeros for what is not active."""
    if channels.inputs is not None:
        kernel = jnp.where(channels.inputs[:, None], kernel, jnp.zeros_like(kernel))
    return kernel if channels.outputs is None else jnp.where(channels.outputs, kernel, 0)


class _Axis(NamedTuple):
    """One axis of n channels, with a mask or without."""

    n: int
    mask: Bool[Array, "n"] | None
    ids: Int32[Array, "n"] | None  # the active channels in order, then n
    place: Int32[Array, "n"] | None  # where each of them is in `ids`
    branch: jax.Array | int  # which of the widths

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.n,) if self.mask is None else widths(self.n)

    def taken(self, array: jax.Array, axis: int, width: int) -> jax.Array:
        """The active channels of an array, in front, and zeros up to the width."""
        if self.mask is None or self.ids is None:
            return array
        if width < self.n:
            return _gathered(array, self.ids[:width], axis)
        mask = jnp.expand_dims(self.mask, tuple(range(1, array.ndim - axis)))
        return jnp.where(mask, array, jnp.zeros_like(array))

    def spread(self, array: jax.Array, axis: int, width: int) -> jax.Array:
        """The channels of such an array where they belong; the others hold anything."""
        if self.place is None or width == self.n:
            return array
        return _gathered(array, self.place, axis)


def _gathered(array: jax.Array, ids: jax.Array, axis: int) -> jax.Array:
    """These entries of an axis; zeros for an id past its end."""
    if axis < array.ndim - 1:
        return jnp.take(array, ids, axis=axis, mode="fill", fill_value=0)
    # An index for every element: of a gather of columns XLA makes a result with the channels
    # outermost, and of a branch that returns one a transposed copy.
    every = jnp.broadcast_to(ids, (*array.shape[:-1], len(ids)))
    return jnp.take_along_axis(array, every, axis=-1, mode="fill", fill_value=0)


def _axis(mask: jax.Array | None, n: int) -> _Axis:
    if mask is None:
        return _Axis(n, None, None, None, 0)
    number = mask.astype(jnp.int32)
    place = jnp.where(mask, jnp.cumsum(number) - 1, n)
    ids = jnp.full_like(place, n).at[place].set(jnp.arange(n, dtype=jnp.int32), mode="drop")
    edges = jnp.asarray(widths(n)[:-1], jnp.int32)
    return _Axis(n, mask, ids, place, jnp.sum(number.sum() > edges, dtype=jnp.int32))


def _switch(
    ins: _Axis, outs: _Axis, branch: Callable[[int, int], Callable[[], jax.Array]]
) -> jax.Array:
    calls = [branch(into, out_of) for into in ins.widths for out_of in outs.widths]
    return jax.lax.switch(ins.branch * len(outs.widths) + outs.branch, calls)
