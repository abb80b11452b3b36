"""The only place that calls `jax.ffi.ffi_call`: typed attributes, and results that keep their mesh
axes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike, DTypeLike

ResultType = tuple[tuple[int, ...], Any]


def encode(value: Any) -> Any:
    """An attribute as the handlers decode it: bool, int64 or float32."""
    if isinstance(value, (bool, np.bool_)):
        return np.bool_(value)
    if isinstance(value, (int, np.integer)):
        return np.int64(value)
    if isinstance(value, (float, np.floating)):
        return np.float32(value)
    raise TypeError(f"attribute of type {type(value).__name__}; handlers take bool, int and float")


def lift(*operands: Any) -> tuple[Any, ...]:
    """Make every array vary over the mesh axes that any of them varies over (`shard_map`).

    Call it before a `Differentiable`, so that the sum over replicas of a cotangent is JAX's own.
    Operands may be pytrees.
    """
    leaves, tree = jax.tree.flatten(operands)
    manual = [_varying(leaf) for leaf in leaves]
    axes = frozenset().union(*manual)
    if axes:
        lifted = [
            jax.lax.pcast(leaf, tuple(sorted(axes - own)), to="varying") if axes - own else leaf
            for leaf, own in zip(leaves, manual, strict=True)
        ]
        return jax.tree.unflatten(tree, lifted)
    return operands


def absent(value: Any, dtype: DTypeLike, shape: tuple[int, ...] = (0,)) -> Any:
    """`value`, or in place of None an array without elements: so handlers take what is absent."""
    return jax.lax.broadcast(np.zeros((), dtype), shape) if value is None else value


def check_sharding(leaf: Any) -> None:
    """A custom call knows nothing of explicit axes: it has to run inside of `shard_map`.

    Raises:
        ValueError: naming the axes.
    """
    sharding = getattr(jax.typeof(leaf), "sharding", None)
    axes = [part for part in getattr(sharding, "spec", ()) if part is not None]
    if axes:
        raise ValueError(
            f"an array {jax.typeof(leaf).str_short()} is sharded over explicit mesh axes {axes}: "
            "call the op inside jax.shard_map over them"
        )


def _varying(leaf: Any) -> frozenset[str]:
    # An array outside of shard_map, and a leaf with no mesh axes at all, varies over none.
    return jax.typeof(leaf).manual_axis_type.varying  # pyright: ignore


def _result(like: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A result's type: it varies as `like` does, and is sharded over no explicit axis."""
    sharding = like.sharding.update(spec=PartitionSpec(*[None] * len(shape)))
    return like.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


def ffi_call(
    target: str,
    results: Sequence[ResultType],
    *operands: ArrayLike,
    input_output_aliases: Mapping[int, int] | None = None,
    **attributes: bool | int | float,
) -> list[jax.Array]:
    """Call the handler `target`.

    Args:
        target: a registered name (docs/contract.md).
        results: (shape, dtype) of each result.
        *operands: arrays; `absent` makes that of an operand which is not given.
        input_output_aliases: operand -> result that shares its buffer.
        **attributes: bool, int (int64) or float (float32).

    Returns:
        The results, varying over the same mesh axes as the operands.

    Raises:
        ValueError: for an operand that is sharded over explicit axes outside of `shard_map`.
    """
    for operand in operands:
        check_sharding(operand)
    arrays = lift(*operands)
    like = jax.typeof(arrays[0])
    types = [_result(like, shape, np.dtype(dtype)) for shape, dtype in results]
    call = jax.ffi.ffi_call(target, types, input_output_aliases=dict(input_output_aliases or {}))
    return list(call(*arrays, **{k: encode(v) for k, v in attributes.items()}))
