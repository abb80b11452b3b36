"""Integers of the caller: static ones as int, arrays of them as int32, never wrapped."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_MAX = 2**31 - 1


def static_int(value: Any) -> int:
    """Whatever counts as an index (int, numpy's or jax's scalar integers) as an int.

    Raises:
        TypeError: for anything else; a bool is no number here.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{value!r} is a bool, not an int")
    return operator.index(value)


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
