"""Checks of a mask's arguments, and of its flag."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxsparse.core.integers import check_count
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.select.config import settings


def check_capacity(partial_capacity: Any) -> int | None:
    """`partial_capacity` as an int of 0 or more, or None.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    return None if partial_capacity is None else check_count("partial_capacity", partial_capacity)


def check_kind(name: str, mask: Any) -> None:
    """`mask` is one mask, not a stack of them from `vmap`.

    Raises:
        ValueError: naming it.
    """
    if mask.kv_counts.ndim != 3:
        stack = tuple(mask.kv_counts.shape[:-3])
        raise ValueError(f"{name} is a stack {stack} of BlockMask: take it apart with jax.vmap")


def warn_lost(maker: str, overflow: jax.Array) -> None:
    """Under `js.checked()`: raise where a mask is flagged, for some of it was left out."""
    if not settings().checked:
        return

    def raise_if(lost: np.ndarray) -> None:
        if lost:
            raise ValueError(
                f"{maker}: some of the mask was left out: it has more partial blocks than "
                "partial_capacity, or its lists have entries out of range or listed twice"
            )

    raise_on_host(raise_if, overflow)
