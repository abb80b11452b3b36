"""`pack_mask` and `unpack_mask`: booleans to and from uint32 words along the last axis."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, UInt32

from jaxsparse.bits import pack
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.select.explain import record


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
    words = pack.pack_mask(mask, implementation=implementation)
    _tell("pack_mask", f"bool{list(np.shape(mask))}", implementation)
    return words


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
    mask = pack.unpack_mask(words, n, implementation=implementation)
    _tell("unpack_mask", f"uint32{list(np.shape(words))} -> {list(mask.shape)}", implementation)
    return mask


def _tell(op: str, shapes: str, implementation: Implementation) -> None:
    record(op, shapes, plan(op, implementation, NAMES), None, None)
