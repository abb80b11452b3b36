"""`Work`: what a call multiplies and moves, from its shapes alone."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np


class Work(NamedTuple):
    """The most that a call does, with every tile, block or row active.

    Attributes:
        flops: two for each multiply-add; of a frozen weight only kept entries count.
        bytes: the sizes of operands and results in bytes, each counted once.
    """

    flops: int
    bytes: int


def work(products: int, *arrays: Any) -> Work:
    """The work of so many products, on these operands and results (None: absent)."""
    leaves: list[Any] = jax.tree.leaves(list(arrays))
    moved = sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in leaves)
    return Work(2 * products, moved)


def result(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """A result, for `work`."""
    return jax.ShapeDtypeStruct(shape, np.dtype(dtype))
