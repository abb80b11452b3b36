"""The vmap rule that every call which lists masks shares."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def fold_lists(run_here: Callable[..., tuple[jax.Array, ...]]) -> Callable[..., Any]:
    """A function of arrays [L, ...] to arrays [L, ...] with its vmap rule: the batch axis is folded
    into L.
    """
    run = jax.custom_batching.custom_vmap(run_here)

    @run.def_vmap
    def rule(axis_size: int, in_batched: list[bool], *operands: jax.Array):
        full = [
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip(operands, in_batched, strict=True)
        ]
        lists = full[0].shape[1]
        out = run(*(x.reshape(axis_size * lists, *x.shape[2:]) for x in full))
        out = tuple(x.reshape(axis_size, lists, *x.shape[1:]) for x in out)
        return out, (True,) * len(out)

    return run
