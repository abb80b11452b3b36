"""`lax.ragged_dot` and the gradient of its weights, on meshes with explicit axes too: there JAX
knows no rule for it, so it runs with those axes automatic, on arrays that are sharded over none.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec


def product(x: jax.Array, rhs: jax.Array, sizes: jax.Array, precision: lax.Precision) -> jax.Array:
    """[m, k], [g, k, n], s32[g] -> f32[m, n]."""

    def run(x: jax.Array, rhs: jax.Array, sizes: jax.Array) -> jax.Array:
        return lax.ragged_dot(x, rhs, sizes, precision, jnp.float32)

    return _automatic(run, 2, x, rhs, sizes)


def weights_grad(
    x: jax.Array, ct: jax.Array, sizes: jax.Array, precision: lax.Precision
) -> jax.Array:
    """f32[m, k], f32[m, n], s32[g] -> f32[g, k, n]: each group's x.T @ ct."""

    def run(x: jax.Array, ct: jax.Array, sizes: jax.Array) -> jax.Array:
        def forward(rhs: jax.Array) -> jax.Array:
            return lax.ragged_dot(x, rhs, sizes, precision, jnp.float32)

        like = jax.typeof(x).update(shape=(sizes.shape[0], x.shape[1], ct.shape[1]))
        return jax.linear_transpose(forward, like)(ct)[0]

    return _automatic(run, 3, x, ct, sizes)


def _automatic(run: Callable[..., jax.Array], rank: int, *arrays: jax.Array) -> jax.Array:
    """`run(*arrays)`, of `rank` axes, with the explicit axes of the mesh automatic."""
    meshes = [jax.sharding.get_abstract_mesh(), *(jax.typeof(v).sharding.mesh for v in arrays)]
    mesh = next((m for m in meshes if m.explicit_axes), None)
    if mesh is None:
        return run(*arrays)
    whole = NamedSharding(mesh, PartitionSpec(*[None] * rank))
    return jax.sharding.auto_axes(axes=mesh.explicit_axes, out_sharding=whole)(run)(*arrays)
