"""Checks that every layer shares: each names the layer's own argument, what came, and what is
needed.
"""

from typing import Any

import jax.numpy as jnp

from jaxsparse.core.checks import check_like_result as like_result


def check_array(name: str, value: Any, axes: str) -> None:
    """`value` is an array with the named `axes` or more, as in "H W C".

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(f"{name} must be an array, not {type(value).__name__}")
    if len(value.shape) < len(axes.split()):
        wanted = ", ".join(["*batch", *axes.split()])
        raise ValueError(f"{name} has shape {tuple(value.shape)}; it needs ({wanted})")


def check_width(name: str, value: Any) -> None:
    """The last axis of the array `value` is not empty: no initialiser takes that.

    Raises:
        ValueError: naming the argument.
    """
    if value.shape[-1] == 0:
        raise ValueError(f"{name} has shape {tuple(value.shape)}; its last axis must not be empty")


def check_tokens(inputs: Any, mask: Any, base: Any) -> None:
    """What a MaskedDense is called with; a mask and the base's shape are left to the op.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array("inputs", inputs, "d" if mask is None else "tokens d")
    check_width("inputs", inputs)
    if base is not None:
        check_array("base", base, "")


def check_like_result(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """`base` or `residual` is an array like the result.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array(name, value, "")
    like_result(name, value, shape, dtype)


def check_dtypes(**given: Any) -> None:
    """Each value is None or a dtype that jax knows.

    Raises:
        TypeError: naming the argument.
    """
    for name, value in given.items():
        if value is None:
            continue
        try:
            jnp.dtype(value)
        except TypeError as error:
            raise TypeError(f"{name}={value!r} is not a dtype") from error


def check_rngs(rngs: Any) -> None:
    """`rngs` draws parameters, as nnx's layers ask it to.

    Raises:
        TypeError: naming the argument.
    """
    if not hasattr(rngs, "params"):
        raise TypeError(f"rngs must be an nnx.Rngs with a stream for params, not {rngs!r}")
