"""What the ops' vmap rules share: fold a batch axis into the images, or loop where no kernel can
take it; and functions with such a rule, made once for each set of static arguments.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax

P = ParamSpec("P")
R = TypeVar("R")

#: How many results `kept` keeps of each function.
MOST_KEPT = 512


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of hashable, static arguments that returns a function. JAX recognises a
    function by its identity, so equal arguments give the same object. The cache is bounded, because
    a process may use ever new shapes: it keeps the results that were used last, and a result that
    it no longer has is made, and traced, again.
    """
    return cast("Callable[P, R]", functools.lru_cache(maxsize=MOST_KEPT)(function))


def fold(value: jax.Array, batched: bool, axis_size: int) -> jax.Array:
    """[N, B, ...] -> [N*B, ...]; an unbatched [B, ...] is repeated N times first."""
    if not batched:
        value = jnp.broadcast_to(value, (axis_size, *value.shape))
    return value.reshape(axis_size * value.shape[1], *value.shape[2:])


def entries(value: jax.Array, batched: bool) -> int:
    """B of [N, B, ...], or of an unbatched [B, ...]: what `unfold` takes. N may be 0."""
    return value.shape[1 if batched else 0]


def unfold(value: jax.Array, axis_size: int, each: int) -> jax.Array:
    """[N*B, ...] -> [N, B, ...], B = `each`."""
    return value.reshape(axis_size, each, *value.shape[1:])


def loop_over(function: Callable[..., Any], args: Sequence[object], in_batched: object) -> Any:
    """`function` at each entry of the batched leaves of `args`, one after the other."""
    leaves, tree = jax.tree.flatten(tuple(args))
    batched = jax.tree.leaves(in_batched)

    def step(entry: list[jax.Array]) -> Any:
        taken = iter(entry)
        whole = [next(taken) if b else v for v, b in zip(leaves, batched, strict=True)]
        return function(*jax.tree.unflatten(tree, whole))

    return lax.map(step, [v for v, b in zip(leaves, batched, strict=True) if b])
