"""Checks that every op shares: each names the argument, what came, and what is needed."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from jaxsparse.core.activations import ACTIVATIONS
from jaxsparse.core.dtypes import FLOATS
from jaxsparse.core.integers import check_static, static_int

_ALGORITHMS = [preset.name.lower() for preset in lax.DotAlgorithmPreset]
_EXACT = [n for n in _ALGORITHMS if n.startswith(("f32", "f64")) or n[-2:] in ("x3", "x6", "x9")]
_HIGHEST = {"high", "highest", "float32", "bfloat16_3x", *_EXACT}
_DEFAULT = {"default", "fastest", "bfloat16", "tensorfloat32", *_ALGORITHMS} - _HIGHEST


def is_traced(tree: Any) -> bool:
    """Whether some array of `tree` is an operand of the function that is being traced; else they
    are all constants.
    """
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def check_array(name: str, value: Any, *, least: int = 0) -> None:
    """`value` is an array of at least `least` axes."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        number = isinstance(value, (list, tuple, bool, int, float))
        how = f": jnp.asarray({name}) makes one" if number else ""
        raise TypeError(f"{name} must be an array, not {type(value).__name__}{how}")
    if isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(f"{name} must be an array, not ShapeDtypeStruct (see jax.eval_shape)")
    if hasattr(value, "todense"):  # scipy's and jax.experimental.sparse's
        raise TypeError(
            f"{name} is a sparse {type(value).__name__}; it takes a dense array: `.todense()`, or "
            "for a weight that does not change js.pruned.inspect and js.pruned_matmul"
        )
    if not all(isinstance(n, (int, np.integer)) for n in value.shape):
        shape = ", ".join(map(str, value.shape))
        raise ValueError(
            f"{name} has shape [{shape}]: shapes are static. A symbol is taken as the first axis "
            "of masked_conv, masked_dense, grouped_matmul, sparse_ffn, pruned_matmul, pruned_conv, "
            "bounded_matmul and a bounded.network"
        )
    if len(value.shape) < least:
        raise ValueError(f"{name} has shape {tuple(value.shape)}; it needs at least {axes(least)}")


def check_rank(name: str, value: Any, rank: int, layout: str = "") -> None:
    """`value` is an array of `rank` axes; `layout` names them, as in "NHWC [B, H, W, C]"."""
    check_array(name, value)
    if len(value.shape) != rank:
        named = f", {layout}" if layout else ""
        raise ValueError(f"{name} has shape {tuple(value.shape)}; it needs {axes(rank)}{named}")


def axes(count: int) -> str:
    """ "1 axis", "2 axes"."""
    return f"{count} {'axis' if count == 1 else 'axes'}"


def as_array(name: str, value: Any) -> jax.Array:
    """`value`, an array by `check_array`, as jax's.

    Raises:
        TypeError: for a dtype that jax does not have, naming the argument.
    """
    try:
        return jnp.asarray(value)
    except TypeError as error:
        if jax.dtypes.issubdtype(value.dtype, np.number):
            raise TypeError(f"{name} must be an array, not {type(value).__name__}") from error
        raise TypeError(f"{name} has dtype {value.dtype}, which jax does not take") from error


def check_whole(name: str, value: jax.Array, why: str) -> None:
    """`value` is not sharded over Explicit mesh axes.

    Raises:
        ValueError: naming the argument, its axes, and what to do.
    """
    sharding = getattr(jax.typeof(value), "sharding", None)
    axes = [part for part in getattr(sharding, "spec", ()) if part is not None]
    if axes:
        raise ValueError(
            f"{name} is sharded over Explicit mesh axes {axes}, but {why}: reshard it first, "
            f"{name} = jax.sharding.reshard({name}, jax.P()), or call inside of jax.shard_map"
        )


def check_float(name: str, value: Any) -> None:
    """`value` is float32, bfloat16 or float16."""
    if np.dtype(value.dtype) not in FLOATS:
        raise TypeError(
            f"{name} has dtype {value.dtype}; it takes float32, bfloat16 or float16: "
            f"{name}.astype(jnp.float32) makes one"
        )


def check_same_dtype(name: str, value: Any, like: str, other: Any) -> None:
    """`value` has the dtype of `other`, which is the argument `like`."""
    if value.dtype != other.dtype:
        raise TypeError(
            f"{name} has dtype {value.dtype}, {like} has {other.dtype}: they must be equal: "
            f"{name}.astype({like}.dtype)"
        )


def check_like_result(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """`value` has the result's shape and dtype."""
    if tuple(value.shape) == tuple(shape) and value.dtype == dtype:
        return
    came, result = f"{value.dtype}{list(value.shape)}", f"{np.dtype(dtype)}{list(shape)}"
    how = f": {name}.astype(jnp.{np.dtype(dtype)})" if tuple(value.shape) == tuple(shape) else ""
    raise ValueError(f"{name} is {came}; the result is {result}{how}")


def check_match(groups: int, x: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    """The channels of x, NHWC, and of the kernel, HWIO, agree with the number of groups."""
    channels, per_group, outputs = x[3], kernel[2], kernel[3]
    came = f"kernel has {per_group} input channels; x has {channels}"
    turned = ""
    if x[1] == per_group * groups:
        turned = "; is x NCHW? x.transpose(0, 2, 3, 1)"
    elif kernel[1] * groups == channels:
        turned = "; is kernel OIHW? kernel.transpose(2, 3, 1, 0)"
    layouts = f" (x is NHWC {x}, kernel HWIO {kernel}{turned})"
    if channels % groups:
        raise ValueError(f"{came}, which groups={groups} does not divide{layouts}")
    if per_group * groups != channels:
        needs = channels // groups
        raise ValueError(f"{came} and groups={groups}, so it needs {needs}{layouts}")
    if outputs % groups:
        raise ValueError(f"kernel has {outputs} outputs, no multiple of groups={groups}{layouts}")


def check_bool(name: str, value: Any) -> bool:
    """`value` as a bool.

    Raises:
        TypeError: for anything else, naming the argument.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return bool(value)


def check_positive(name: str, value: Any) -> int:
    """`value` as an int of 1 or more."""
    check_static(name, value)
    try:
        number = static_int(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}; it takes a positive int") from None
    if number < 1:
        raise ValueError(f"{name}={value!r}; it takes a positive int")
    return number


def result_dtype(preferred: Any, dtype: Any) -> np.dtype:
    """The result's dtype: `dtype` where `preferred_element_type` is None, else that or float32."""
    takes = " or ".join(dict.fromkeys((np.dtype(dtype).name, "float32")))
    if preferred is None:
        return np.dtype(dtype)
    if isinstance(preferred, (jax.Array, np.ndarray)):
        raise TypeError(f"preferred_element_type is an array; it takes {takes}")
    try:
        found = np.dtype(preferred)
    except (TypeError, ValueError):
        raise TypeError(f"preferred_element_type={preferred!r}; it takes {takes}") from None
    if found not in (np.dtype(dtype), np.dtype(np.float32)):
        raise TypeError(f"preferred_element_type={found}; it takes {takes}")
    return found


def check_activation(activation: str | None) -> None:
    """`activation` is one of those that the kernels fuse."""
    if activation is not None and not isinstance(activation, str):
        raise TypeError(
            f"activation must be a name or None, not {activation!r}; "
            f"it takes {', '.join(map(repr, ACTIVATIONS))}"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation={activation!r} is not one of {', '.join(map(repr, ACTIVATIONS))}"
        )


def check_offsets(name: str, shape: tuple[int, ...]) -> None:
    """Every axis fits the 32-bit coordinates of the kernels (offsets are 64-bit)."""
    if any(n >= 2**31 for n in shape) or math.prod(shape[:-1]) >= 2**31:
        raise ValueError(
            f"{name} has shape {tuple(shape)}: no axis, nor all but the last together, may have "
            "2^31 entries or more"
        )


def canonical_precision(precision: Any) -> str:
    """ "default" or "highest", from an argument of jax.lax's kind or
    `jax.default_matmul_precision`. Of the dot algorithms (`lax.DotAlgorithmPreset`, or its name)
    those of float32, float64 or several passes are "highest", the others "default".

    Raises:
        ValueError: for a precision that jax does not know, and for a `lax.DotAlgorithm`.
    """
    if type(precision) in (tuple, list) and len(precision) == 2:
        found = {canonical_precision(p) for p in precision}
        return "highest" if "highest" in found else "default"
    name = precision
    if name is None:
        name = jax.config.jax_default_matmul_precision  # pyright: ignore
    if name is None:
        return "default"
    if isinstance(name, (lax.Precision, lax.DotAlgorithmPreset)):
        name = name.name
    if isinstance(name, str) and name.lower() in _DEFAULT:
        return "default"
    if isinstance(name, str) and name.lower() in _HIGHEST:
        return "highest"
    raise ValueError(
        f"precision={precision!r}; it takes None, 'default', 'high', 'highest', a lax.Precision, "
        "a lax.DotAlgorithmPreset, or two of them"
    )
