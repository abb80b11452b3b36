"""Integers of the caller: static ones as int, arrays of them as int32, never wrapped."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_MAX = 2**31 - 1


def static_int(value: Any) -> int:
    """Whatever counts as an index (int, numpy's or jax's scalar integers) as an int.

    Raises:
        TypeError: for anything else; a bool is not a number here.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{value!r} is a bool, not an int")
    return operator.index(value)


def check_static(name: str, value: Any) -> None:
    """`value`, or every entry of a sequence, is known when this is traced.

    Raises:
        TypeError: for a traced value, naming the argument.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        raise TypeError(f"{name} is traced; it must be static (see static_argnames of jax.jit)")


def check_count(name: str, value: Any) -> int:
    """`value` as an int of 0 or more that int32 holds.

    Raises:
        TypeError, ValueError: for anything else, naming the argument.
    """
    check_static(name, value)
    try:
        number = static_int(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if not 0 <= number <= _MAX:
        raise ValueError(f"{name}={number}; it takes 0 to 2^31 - 1")
    return number


def as_int32(name: str, value: Any) -> jax.Array:
    """An integer array as int32; a number that int32 cannot hold becomes -1 or 2^31 - 1.

    A numpy array is clipped in its own dtype, before jax without x64 would truncate it.

    Raises:
        TypeError: for another dtype, naming the argument.
    """
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {value.dtype}; it takes integers")
    limits = jnp.iinfo(value.dtype)
    if limits.max > _MAX:
        clip = jnp.clip if isinstance(value, jax.Array) else np.clip
        value = clip(value, max(int(limits.min), -1), _MAX)
    return jnp.asarray(value.astype(np.int32))
