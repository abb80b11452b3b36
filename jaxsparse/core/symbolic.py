"""A first axis whose size is a symbol (`jax.export.symbolic_shape`): the op runs on pieces of a
constant size, in a `jax.lax.scan`.

The kernels' workspaces, lists and choices are made for numbers that are known when a function is
traced, so an op itself never sees a symbol. The last piece is padded with zeros, False in a mask.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_symbolic(value: Any) -> bool:
    """Whether `value` is an array with a symbol in its shape."""
    return any(not isinstance(n, (int, np.integer)) for n in getattr(value, "shape", ()))


def in_pieces(
    op: Callable[..., Any], given: Mapping[str, Any], size: int, *, rest: str, first: str = ""
) -> Any:
    """`op` of arrays whose first axis is one symbol.

    Args:
        op: a function of the values of `given`, by name. Its result is an array, or a pytree of
            arrays, with the same first axis.
        given: the user's name -> an array with that axis, of which the first is one; a pytree of
            such arrays; one of a first axis of 1, which holds for every entry; or None.
        size: entries of a piece.
        rest: why the other axes are numbers.
        first: the user's name of the first of `given`, where it is a pytree's.

    Raises:
        ValueError: for a symbol in another place, naming the argument.
    """
    name, value = next(iter(given.items()))
    batch = jax.tree.leaves(value)[0].shape[0]
    whole: dict[str, Any] = {}
    cut: dict[str, Any] = {}
    for key, each in given.items():
        leaves = jax.tree.leaves(each)
        for leaf in leaves:
            _check(key, leaf, batch, rest, first or name)
        common = all(isinstance(leaf.shape[0], int) for leaf in leaves)
        (whole if common else cut)[key] = each
    many = (batch + size - 1) // size

    def pieces(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        pads = [(0, many * size - batch), *[(0, 0)] * (leaf.ndim - 1)]
        return jnp.pad(leaf, pads).reshape(many, size, *leaf.shape[1:])

    def step(carry: None, piece: Any) -> tuple[None, Any]:
        return carry, op(**piece, **whole)

    _, found = jax.lax.scan(step, None, jax.tree.map(pieces, cut))
    return jax.tree.map(lambda y: y.reshape(many * size, *y.shape[2:])[:batch], found)


def _check(name: str, leaf: Any, batch: Any, rest: str, first: str) -> None:
    """The first axis of `leaf` is `batch`, or 1, and the others are numbers."""
    shape = ", ".join(map(str, leaf.shape))
    if is_symbolic(jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)):
        raise ValueError(
            f"{name} has shape [{shape}]: only the first axis may be a symbol, because {rest}"
        )
    own = leaf.shape[0] if leaf.shape else None
    if not (own == batch or (isinstance(own, int) and own == 1)):
        raise ValueError(f"{name} has shape [{shape}]; {first} has a first axis of {batch}")
