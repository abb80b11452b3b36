"""The vmap rule of `sparse_attention`: a batch axis joins the batch, and the slots of masks that
differ are numbered through.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxsparse.core.batching import entries, fold
from jaxsparse.ops.sparse_attention.params import Backward, Forward

LISTS = ("kv_counts", "kv_blocks", "kv_slots", "q_counts", "q_blocks", "q_slots")
SLOTS = ("kv_slots", "q_slots")

Arrays = TypeVar("Arrays", bound=Forward | Backward)


def folded(arrays: Arrays, in_batched: Sequence[bool], axis_size: int) -> tuple[Arrays, int]:
    """The arrays of one call for all entries, and the batch of one entry. No slopes are batched."""
    batched = {n: bool(b) for n, b in zip(arrays._fields, in_batched, strict=True)}
    given = arrays._asdict()
    batch = entries(arrays.q, batched["q"])
    vary = batched["words"] or any(batched.get(name, False) for name in LISTS)
    first = arrays.kv_counts.shape[1 if batched["kv_counts"] else 0]
    lists = vary or first != 1

    def spread(value: jax.Array, has_axis: bool) -> jax.Array:
        """[n, batch, ...] of [n or none, batch or 1, ...]."""
        value = value if has_axis else value[None]
        return jnp.broadcast_to(value, (axis_size, batch, *value.shape[2:]))

    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or name == "slopes":
            found[name] = value
        elif name == "words":
            found[name] = value.reshape(-1, *value.shape[2:]) if batched[name] else value
        elif name in LISTS:
            found[name] = value
            if lists:
                wide = spread(value, batched[name])
                if name in SLOTS and batched["words"]:
                    wide = _numbered(wide, arrays.words.shape[1])
                found[name] = wide.reshape(axis_size * batch, *wide.shape[2:])
        elif name == "bias":
            shared = not batched[name] and value.shape[0] == 1
            wide = value if shared else spread(value, batched[name])
            found[name] = wide if shared else wide.reshape(axis_size * batch, *wide.shape[2:])
        else:
            found[name] = fold(value, batched[name], axis_size)
    return type(arrays)(**found), batch


def _numbered(slots: jax.Array, room: int) -> jax.Array:
    """Entry i's slots in the words of all entries; one that is out of range stays so."""
    start = jnp.arange(slots.shape[0], dtype=jnp.int32) * room
    start = start.reshape(-1, *[1] * (slots.ndim - 1))
    known = (slots >= 0) & (slots < room)
    return jnp.where(known, slots + start, jnp.where(slots == -1, -1, -2))
