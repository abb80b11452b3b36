"""`jax.debug_nans`: JAX then looks at every array that an eager step makes. What an op moves, but
never reads, and what it leaves undefined, may hold a NaN that means nothing.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def debugs_nans() -> bool:
    """Whether `jax.debug_nans` is on."""
    config: Any = jax.config
    return bool(config.jax_debug_nans)


def uninspected(move: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """`move`, which gives arrays another shape and computes nothing: JAX does not look at them."""

    @functools.wraps(move)
    def moving(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        if not debugs_nans():
            return move(*args, **kwargs)
        with jax.debug_nans(False):
            return move(*args, **kwargs)

    return moving
