"""The mesh that arrays are on, and results that shards of it add up."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

#: A mesh axis, or several as one.
AxisName = str | tuple[str, ...]


def devices_along(op: str, axis_name: Any, split: str) -> int:
    """How many devices the axis has, in a call of `op` inside of a `shard_map` that splits what
    `split` names.

    Raises:
        TypeError: if `axis_name` is neither a name nor a tuple of names.
        ValueError: if no `shard_map` around the call has the axis.
    """
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"axis_name={axis_name!r}; it takes a mesh axis's name, or a tuple of them")
    try:
        return math.prod(jax.lax.axis_size(name) for name in names)
    except NameError:
        raise ValueError(
            f"{op}: axis_name={axis_name!r} is not an axis of a jax.shard_map around this call: "
            f"call it inside a jax.shard_map that splits {split} over that axis"
        ) from None


def mesh_of(leaves: Sequence[jax.Array]) -> Any:
    """The mesh that a call of these arrays may be split over, of several devices or of Explicit
    axes; None: there is none, or the call is in a `shard_map`.
    """
    no_jit = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    meshes = [mesh_in_force(leaf) for leaf in leaves]
    if no_jit or any(mesh.manual_axes for mesh in meshes if not mesh.empty):
        return None
    return next(
        (mesh for mesh in meshes if not mesh.empty and (mesh.size > 1 or mesh.explicit_axes)), None
    )


def sharded_as(value: jax.Array, like: jax.Array) -> jax.Array:
    """A value over the Explicit axes of `like`. A cotangent may come without those of its primal:
    the transpose of a sum over a sharded axis is whole on every device.
    """
    mesh, spec = jax.typeof(like).sharding.mesh, jax.typeof(like).sharding.spec
    if jax.typeof(value).sharding.spec == spec or not mesh.explicit_axes:
        return value
    return jax.sharding.reshard(value, NamedSharding(mesh, spec))


def on_mesh(leaf: Any) -> Any:
    """An array of no mesh as one of the mesh in force, where that has Explicit axes: XLA's
    operations take no two that differ in it.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if leaf is None or not mesh.explicit_axes or mesh.manual_axes:
        return leaf
    if not jax.typeof(leaf).sharding.mesh.empty:
        return leaf
    return jax.sharding.reshard(leaf, NamedSharding(mesh, PartitionSpec()))


def off_mesh(stack: contextlib.ExitStack, leaves: Sequence[Any]) -> Sequence[Any]:
    """A shard's arrays without Explicit axes, until the stack is left: where the caller's mesh has
    some, JAX would say of each step of a shard how it is sharded, and no shard is.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.explicit_axes:
        return leaves
    auto = mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))
    stack.enter_context(jax.sharding.use_abstract_mesh(auto))
    return [jax.sharding.reshard(leaf, PartitionSpec()) for leaf in leaves]


def is_explicit(leaf: Any) -> bool:
    """Whether an array is sharded over Explicit mesh axes."""
    return any(part is not None for part in jax.typeof(leaf).sharding.spec)


def mesh_in_force(leaf: Any) -> Any:
    """The mesh of the context, or where there is none, that of an array."""
    context = jax.sharding.get_abstract_mesh()
    return jax.typeof(leaf).sharding.mesh if context.empty else context


def combine(value: jax.Array, axes: tuple[str, ...], least: bool) -> jax.Array:
    """A shard's result with those of the shards along these axes: the sum (bool: any of them), or
    the least. Sums of 16-bit values are in float32, rounded once.
    """
    if not axes:
        return value
    if least:
        return jax.lax.pmin(value, axes)
    if value.dtype == jnp.bool_:
        return jax.lax.psum(value.astype(jnp.int32), axes) > 0
    if jnp.issubdtype(value.dtype, jnp.floating) and value.dtype.itemsize == 2:
        return jax.lax.psum(value.astype(jnp.float32), axes).astype(value.dtype)
    return jax.lax.psum(value, axes)
