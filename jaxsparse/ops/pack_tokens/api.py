"""`pack_tokens` and `unpack_tokens`: a ragged batch as one run of rows, and back. The list comes
from `tile_index`; the rows are moved by XLA's gather and scatter, on every platform.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Shaped

from jaxsparse.core.checks import as_array, check_array, check_like_result, check_whole
from jaxsparse.core.integers import check_count
from jaxsparse.core.masks import check_mask
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.ffi.platform import NAMES, implementation_key, offers, plan, runs_as
from jaxsparse.ffi.whole import kept_whole
from jaxsparse.index.packing import TokenPacking, packing_of
from jaxsparse.select.config import settings
from jaxsparse.select.explain import Counted, record

runs_as("pack_tokens", "tile_index")
OFFERED = offers("unpack_tokens", "reference")  # XLA's operations, on every platform

_TOGETHER = "the tokens of all sequences lie side by side"


@takes_variables
def pack_tokens(
    x: Shaped[ArrayLike, "B T *features"],
    mask: Bool[ArrayLike, "B T"] | TokenPacking,
    *,
    capacity: int | None = None,
    implementation: Implementation = None,
) -> tuple[Shaped[Array, "capacity *features"], TokenPacking]:
    """Move the tokens that count into consecutive rows, in order. Their number is data on the
    device; the shapes depend on the capacity only. Layers that work token by token then run on the
    packed rows, and `js.sparse_attention` with `packing.block_mask()`.

    Differentiable in x: the gradient of a token that is not packed is zero, and such a token is
    never read (it may hold NaN).

    Args:
        x: any dtype [B, T, ...].
        mask: bool[B, T] or bool[1, T], True for tokens that count (`js.lengths_mask` makes one from
            lengths); or the packing of an earlier call, to pack another array in the same way.
        capacity: number of rows of the result; None: B*T, which holds every token. If more tokens
            count, only the first are packed, `packing.overflow` is set, and `js.checked()` raises.
        implementation: of the list of tokens: None (best available), "cuda", "cpu", "reference", or
            a sequence of them. The rows are moved by XLA's own operations in each case.

    Returns:
        (packed, packing): [capacity, ...] of x's dtype, zero after the last token; and a
        `TokenPacking` for `unpack_tokens`.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or capacity, naming the argument;
            ValueError when a named implementation cannot run.
    """
    how = plan("tile_index", implementation, NAMES)
    check_array("x", x, least=2)
    x = as_array("x", x)
    check_whole("x", x, _TOGETHER)
    x = kept_whole("pack_tokens", "x", x, range(2, x.ndim), _TOGETHER)
    shape = (x.shape[0], x.shape[1])
    if isinstance(mask, TokenPacking):
        packing = _fit(mask, shape, "x's tokens are")
        if capacity is not None and check_count("capacity", capacity) != packing.capacity:
            raise ValueError(f"capacity={capacity}; the packing has {packing.capacity}")
        _tell(x, packing, how)
        return _pack(x, packing), packing
    takes = "a bool mask or a TokenPacking"
    mask = check_mask("mask", mask, shape, fixed=1, of="x's tokens are", takes=takes)
    check_whole("mask", mask, _TOGETHER)
    mask = kept_whole("pack_tokens", "mask", mask, (), _TOGETHER)
    room = None if capacity is None else check_count("capacity", capacity)
    packing = packing_of(mask, room, implementation_key(implementation))
    if room is not None:
        packing = _with_room(packing, room)
    _check_fit(mask, packing)
    _tell(x, packing, how)
    return _pack(x, packing), packing


def _tell(x: jax.Array, packing: TokenPacking, how: Mapping[str, str]) -> None:
    """Note the call for `js.explain`."""
    counted = Counted(math.prod(packing.shape), packing.count, packing.overflow)
    shapes = f"{x.dtype.name}{list(x.shape)} -> {packing.capacity} rows"
    record("pack_tokens", shapes, how, None, counted, "tokens")


@takes_variables
def unpack_tokens(
    packed: Shaped[ArrayLike, "capacity *features"],
    packing: TokenPacking,
    *,
    base: Shaped[ArrayLike, "B T *features"] | None = None,
    implementation: Implementation = None,
) -> Shaped[Array, "B T *features"]:
    """Put packed tokens back where they came from. Differentiable in packed and base.

    Args:
        packed: any dtype [capacity, ...]; rows after the last token are never read.
        packing: from `pack_tokens`.
        base: values of the tokens that were not packed, [B, T, ...] of packed's dtype; None: zeros.
        implementation: None, "cuda", "cpu", "reference", or a sequence of them. XLA's own
            operations run in each case.

    Returns:
        [B, T, ...] of packed's dtype.

    Raises:
        TypeError, ValueError: for a wrong shape or dtype, naming the argument; ValueError when a
            named implementation cannot run.
    """
    if implementation_key(implementation) is not None:
        plan("unpack_tokens", implementation, NAMES)
    check_array("packed", packed, least=1)
    packed = as_array("packed", packed)
    check_whole("packed", packed, _TOGETHER)
    packed = kept_whole("unpack_tokens", "packed", packed, range(1, packed.ndim), _TOGETHER)
    if not isinstance(packing, TokenPacking):
        raise TypeError(
            f"packing must be the TokenPacking of js.pack_tokens, not {type(packing).__name__}"
        )
    _check_single(packing)
    if packed.shape[0] != packing.capacity:
        raise ValueError(
            f"packed has shape {packed.shape}; the packing needs ({packing.capacity}, ...)"
        )
    shape = (*packing.shape, *packed.shape[1:])
    if base is not None:
        check_array("base", base)
        base = as_array("base", base)
        check_like_result("base", base, shape, packed.dtype)
    shapes = f"{packed.dtype.name}{list(packed.shape)} -> {list(shape)}"
    record("unpack_tokens", shapes, plan("unpack_tokens", None, OFFERED), None, None)
    return _unpack(packed, packing, base)


@jax.jit
def _pack(x: jax.Array, packing: TokenPacking) -> jax.Array:
    if not x.size:
        return jnp.zeros((packing.capacity, *x.shape[2:]), x.dtype)
    flat = x.reshape(-1, *x.shape[2:])
    return flat.at[packing.rows].get(
        mode="fill", fill_value=0, unique_indices=True, indices_are_sorted=True
    )


@jax.jit
def _unpack(packed: jax.Array, packing: TokenPacking, base: jax.Array | None) -> jax.Array:
    batch, length = packing.shape
    start = jnp.zeros((batch, length, *packed.shape[1:]), packed.dtype) if base is None else base
    if not start.size:
        return start
    flat = start.reshape(-1, *packed.shape[1:])
    moved = flat.at[packing.rows].set(
        packed, mode="drop", unique_indices=True, indices_are_sorted=True
    )
    return moved.reshape(start.shape)


@functools.partial(jax.jit, static_argnums=1)
def _with_room(packing: TokenPacking, room: int) -> TokenPacking:
    """The packing with `room` rows: an index has no more than there are tokens."""
    rows = packing.rows
    more = packing.shape[0] * packing.shape[1] + jnp.arange(room, dtype=jnp.int32)
    rows = jnp.concatenate([rows, more[rows.size :]])
    return TokenPacking(rows, packing.count, packing.overflow, packing.cu_seqlens, packing.shape)


def _fit(packing: TokenPacking, shape: tuple[int, int], of: str) -> TokenPacking:
    _check_single(packing)
    if packing.shape != shape:
        raise ValueError(f"mask is a TokenPacking of {packing.shape} tokens; {of} {shape}")
    return packing


def _check_single(packing: TokenPacking) -> None:
    if packing.rows.ndim != 1:
        stack = tuple(packing.rows.shape[:-1])
        raise ValueError(f"a stack {stack} of TokenPacking: take it apart with jax.vmap")


def _check_fit(mask: Any, packing: TokenPacking) -> None:
    """Under `js.checked()`: raise for more tokens than the capacity."""
    if not settings().checked:
        return

    def raise_if(tokens: np.ndarray) -> None:
        if tokens > packing.capacity:
            raise ValueError(
                f"pack_tokens: {tokens} tokens count, and capacity={packing.capacity}: those past "
                "it were left out"
            )

    raise_on_host(raise_if, mask.sum(dtype=jnp.int32))
