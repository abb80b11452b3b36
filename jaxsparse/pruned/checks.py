"""Checks of the weights and masks that are read outside of jit."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def check_concrete(name: str, value: Any) -> None:
    """`value` is neither an operand of a function that is being traced nor a shape alone.

    Raises:
        TypeError: naming the argument.
    """
    if isinstance(value, Tracer):
        raise TypeError(f"{name} is traced: this is done once, outside of jit, on concrete arrays")
    if isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(f"{name} is a ShapeDtypeStruct; it takes a concrete array")


def check_dense(name: str, value: Any, takes: str = "a dense numpy or jax array") -> None:
    """`value` is neither a sparse matrix nor a masked array: numpy would misread either.

    Raises:
        TypeError: naming the argument, what came, and what it takes.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, which would lose its mask; it takes a plain one "
            "(js.pruned.inspect takes what is kept as mask=)"
        )
    if hasattr(value, "todense"):  # scipy's and jax.experimental.sparse's
        raise TypeError(f"{name} is a sparse {type(value).__name__}; it takes {takes}")
