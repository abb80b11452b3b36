"""Positions, lengths and lists of them, as a caller gives them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.checks import check_array, check_whole
from jaxsparse.core.integers import as_int32, static_int
from jaxsparse.ffi.whole import kept_whole

#: Why a mask is made of whole arrays.
NUMBERED = "the blocks of all masks are numbered together"

#: Beyond every position: a sum with a position does not wrap.
_FAR = 2**30


def each(name: str, value: Any) -> jax.Array:
    """An int, int[] or int[B] as int32[1 or B, 1, 1].

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(static_int(value))
        except TypeError:
            what = type(value).__name__
            raise TypeError(f"{name} must be an int, int[] or int[B], not {what}") from None
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {value.dtype}; it takes integers")
    if value.ndim > 1:
        raise ValueError(f"{name} has shape {value.shape}; it takes an int, int[] or int[B]")
    limits = jnp.iinfo(value.dtype)
    clip = jnp.clip if isinstance(value, jax.Array) else np.clip
    value = clip(value, max(int(limits.min), -_FAR), min(int(limits.max), _FAR))
    found = jnp.asarray(value.astype(np.int32))
    return all_blocks(name, found).reshape(-1, 1, 1)


def rows_of(name: str, value: Any) -> jax.Array:
    """int[n] or int[B, n] as int32[1 or B, n].

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array(name, value)
    value = as_int32(name, value)
    if value.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {value.shape}; it takes [n] or [B, n]")
    value = all_blocks(name, value)
    return value if value.ndim == 2 else value[None]


def all_blocks(name: str, value: jax.Array) -> jax.Array:
    """What a mask is made of, whole on every device; on Auto axes a warning says so.

    Raises:
        ValueError: for an array that is sharded over Explicit axes, naming the argument.
    """
    check_whole(name, value, NUMBERED)
    return kept_whole("BlockMask", name, value, (), NUMBERED)
