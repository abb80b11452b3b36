"""Masks, as every op and every layer shares them: the check, which says how to make one that fits,
and the select.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.checks import axes, check_array


def check_mask(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    *,
    fixed: int,
    of: str,
    takes: str = "a bool mask",
    hint: str = "",
) -> jax.Array:
    """`value` as bool of `shape`: leading axes of length 1 are broadcast, the last `fixed` are not.

    Args:
        name: of the argument.
        value: what the user gave.
        shape: what is needed.
        fixed: how many of the last axes must agree.
        of: whose shape that is, "the result's mask has".
        takes: what the argument takes.
        hint: how to make a mask of that shape; behind the shapes.

    Raises:
        TypeError, ValueError: naming the argument, what came, what is needed, and how to make it.
    """
    check_array(name, value)
    given = tuple(value.shape)
    if value.dtype != np.bool_:
        how = f"`{name} != 0` makes one"
        if np.issubdtype(value.dtype, np.integer) and fixed == 1 and len(given) == len(shape) - 1:
            how += f"; js.lengths_mask({name}, {shape[-1]}) makes one of lengths"
        if value.dtype == np.uint32 and given == (*shape[:-1], -(-shape[-1] // 32)):
            how = f"js.unpack_mask({name}, {shape[-1]}) makes one of words"
        raise TypeError(f"{name} has dtype {value.dtype}; it takes {takes}: {how}")
    if len(given) != len(shape):
        how = f": {name}[None] holds for the whole batch" if given == shape[1:] else ""
        how = f": {name}[..., 0] has them" if given == (*shape, 1) else how
        raise ValueError(
            f"{name} has shape {given}; it needs {axes(len(shape))}, {of} {shape}{how}"
        )
    lead = len(shape) - fixed
    fits = all(n in (1, m) for n, m in zip(given[:lead], shape[:lead], strict=True))
    if not fits or given[lead:] != shape[lead:]:
        how = hint
        if given[lead:] == shape[lead:]:
            how = "; leading axes of length 1 hold for the whole batch"
        raise ValueError(f"{name} has shape {given}; {of} {shape}{how}")
    mask = jnp.asarray(value)
    return mask if given == shape else jnp.broadcast_to(mask, shape)


def where_set(mask: jax.Array, value: jax.Array, other: jax.Array | None = None) -> jax.Array:
    """`value` where a mask of its leading axes is set, elsewhere `other`; None: zero.

    XLA's own select: `jnp.where` traces a function of its own for each shape.
    """
    whole = jax.lax.broadcast_in_dim(mask, value.shape, range(mask.ndim))
    return jax.lax.select(whole, value, jax.lax.full_like(value, 0) if other is None else other)
