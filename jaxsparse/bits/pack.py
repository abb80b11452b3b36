"""`pack_mask` and `unpack_mask`: booleans to and from uint32 words along the last axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, UInt32

from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, Rule, Shards, dispatch, ffi_call, partitioned
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.reference import bits as reference


def word_count(n: int) -> int:
    """How many words hold n bits."""
    return -(-n // 32)


@takes_variables
def pack_mask(
    mask: Bool[ArrayLike, "*axes n"], *, implementation: Implementation = None
) -> UInt32[Array, "*axes words"]:
    """Pack the last axis into words: bit i of word w is `mask[..., 32*w + i]`, zero past n.

    Args:
        mask: bool[..., n]; any leading axes, n may be 0.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        uint32[..., ceil(n/32)].

    Raises:
        TypeError: when `mask` is not a boolean array.
        ValueError: for a scalar, or when a named implementation cannot run.
    """
    mask = _array("mask", mask, np.dtype(bool))
    words = _rows("pack_mask", "mask", _pack, mask, implementation_key(implementation))
    return words.reshape(*mask.shape[:-1], word_count(mask.shape[-1]))


@takes_variables
def unpack_mask(
    words: UInt32[ArrayLike, "*axes words"], n: int, *, implementation: Implementation = None
) -> Bool[Array, "*axes n"]:
    """The inverse of `pack_mask`. Bits past n are ignored.

    Args:
        words: uint32[..., ceil(n/32)].
        n: length of the last axis of the result.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        bool[..., n].

    Raises:
        TypeError: when `words` is not a uint32 array or `n` not an int.
        ValueError: when `n` does not fit `words`, or a named implementation cannot run.
    """
    words = _array("words", words, np.dtype(np.uint32))
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise TypeError(f"n must be an int, not {type(n).__name__}")
    n = int(n)
    if n < 0 or words.shape[-1] != word_count(n):
        raise ValueError(
            f"words has {words.shape[-1]} words on its last axis; n={n} needs "
            f"{word_count(max(n, 0))}"
        )
    mask = _rows("unpack_mask", "words", _unpack, words, n, implementation_key(implementation))
    return mask.reshape(*words.shape[:-1], n)


def _array(name: str, value: Any, dtype: np.dtype) -> jax.Array:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(f"{name} must be an array, not {type(value).__name__}")
    if value.dtype != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}; it takes {dtype}")
    if not value.shape:
        raise ValueError(f"{name} is a scalar; it needs at least one axis")
    return jnp.asarray(value)


def _rows(
    op: str, name: str, function: Callable[..., jax.Array], value: jax.Array, *static: Any
) -> jax.Array:
    value = first_axis_alone(op, name, value, 1)
    rows = value.reshape(math.prod(value.shape[:-1]), value.shape[-1])
    return function(rows, *static)


def _fold_rows(
    name: str, function: Callable[[jax.Array], jax.Array]
) -> Callable[[jax.Array], jax.Array]:
    """`function` of [rows, k], which a mesh may split by the rows, with a vmap rule that folds the
    batch axis into them. `name`: the user's for its operand.
    """
    rule_of_mesh = Rule(f"{name} words", ("r .",), ("r .",), ("r",), (name,), from_end=True)

    def in_shard(shards: Shards, value: jax.Array) -> jax.Array:
        return function(value)

    run = jax.custom_batching.custom_vmap(partitioned(rule_of_mesh, function, in_shard))

    @run.def_vmap
    def rule(axis_size: int, in_batched: list[bool], value: jax.Array):
        out = run(value.reshape(axis_size * value.shape[1], value.shape[2]))
        return out.reshape(axis_size, value.shape[1], out.shape[1]), True

    return run


@functools.partial(jax.jit, static_argnums=1)
def _pack(mask: jax.Array, implementation: Any) -> jax.Array:
    return _packer(implementation)(mask)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _unpack(words: jax.Array, n: int, implementation: Any) -> jax.Array:
    return _unpacker(n, implementation)(words)


@functools.cache
def _packer(implementation: Any) -> Callable[[jax.Array], jax.Array]:
    def native(mask: jax.Array) -> jax.Array:
        shape = (mask.shape[0], word_count(mask.shape[1]))
        return ffi_call("jaxsparse_pack_mask", [(shape, np.uint32)], mask)[0]

    return _fold_rows(
        "mask",
        lambda mask: dispatch(
            "pack_mask", implementation, cuda=native, cpu=native, reference=reference.pack_mask
        )(mask),
    )


@functools.cache
def _unpacker(n: int, implementation: Any) -> Callable[[jax.Array], jax.Array]:
    def native(words: jax.Array) -> jax.Array:
        return ffi_call("jaxsparse_unpack_mask", [((words.shape[0], n), np.bool_)], words)[0]

    return _fold_rows(
        "words",
        lambda words: dispatch(
            "unpack_mask",
            implementation,
            cuda=native,
            cpu=native,
            reference=functools.partial(reference.unpack_mask, n=n),
        )(words),
    )
