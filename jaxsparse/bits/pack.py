"""Booleans to and from uint32 words along the last axis: what `js.pack_mask` and `js.unpack_mask`
run, and ops that have words of their own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxsparse.core.batching import kept
from jaxsparse.core.checks import check_array
from jaxsparse.core.integers import check_count
from jaxsparse.ffi import Implementation, Rule, Shards, dispatch, ffi_call, partitioned
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.reference import bits as reference


def word_count(n: int) -> int:
    """How many words hold n bits."""
    return -(-n // 32)


def pack_mask(mask: ArrayLike, *, implementation: Implementation = None) -> jax.Array:
    """`js.pack_mask`, for an op that packs a mask itself: no call of its own for `js.explain`."""
    mask = _array("mask", mask, np.dtype(bool))
    words = _rows("pack_mask", "mask", _pack, mask, implementation_key(implementation))
    return words.reshape(*mask.shape[:-1], word_count(mask.shape[-1]))


def unpack_mask(words: ArrayLike, n: int, *, implementation: Implementation = None) -> jax.Array:
    """`js.unpack_mask`, for an op that unpacks words itself."""
    words = _array("words", words, np.dtype(np.uint32))
    n = check_count("n", n)
    if words.shape[-1] != word_count(n):
        raise ValueError(
            f"words has {words.shape[-1]} words on its last axis; n={n} needs {word_count(n)}"
        )
    mask = _rows("unpack_mask", "words", _unpack, words, n, implementation_key(implementation))
    return mask.reshape(*words.shape[:-1], n)


#: How an array of another dtype becomes one of these.
_HOW = {"mask": "`mask != 0` makes one", "words": "js.pack_mask(mask) makes them"}


def _array(name: str, value: Any, dtype: np.dtype) -> jax.Array:
    check_array(name, value)
    if value.dtype != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}; it takes {dtype}: {_HOW[name]}")
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


@kept
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


@kept
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
