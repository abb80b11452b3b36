"""Index building on a mesh: each shard lists the tiles of its own images."""

from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from jaxsparse.ffi import Rule, Shards, partitioned

Kind = Literal["words", "ids", "corners", "count", "overflow", "choice"]

#: Lists (l) of images (b), each of which has t slots in a list.
_FACTORS: dict[Kind, str] = {
    "words": "l b . .",
    "ids": "l (b t)",
    "corners": "l (b t) .",
    "count": "l",
    "overflow": "l",
    "choice": "l",
}


def split_lists(
    names: Sequence[str],
    operands: Sequence[str],
    kinds: Sequence[Kind],
    call: Callable[[int], Callable[..., tuple[jax.Array, ...]]],
    limited: str = "",
) -> Callable[..., tuple[jax.Array, ...]]:
    """A function of arrays to lists that a mesh may split by the images.

    Args:
        names: the user's names of the operands.
        operands: their factors, of which l and b are split; b is the second axis.
        kinds: of the results. `ids` and `corners` have room for every tile.
        call: how many parts the images are in -> the function of one part.
        limited: why the images are not split, if they are not.
    """
    rule = Rule(
        "tile_index",
        tuple(operands),
        tuple(_FACTORS[kind] for kind in kinds),
        ("l",) if limited else ("l", "b"),
        tuple(names),
        from_end=True,
        least=frozenset(i for i, kind in enumerate(kinds) if kind == "choice"),
        why={"b": limited} if limited else {},
    )

    def local(shards: Shards, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        found = call(shards.count("b"))(*arrays)
        images = arrays[0].shape[1]
        return tuple(
            _of_all(kind, value, shards, images) for kind, value in zip(kinds, found, strict=True)
        )

    return partitioned(rule, call(1), local)


def _of_all(kind: Kind, value: jax.Array, shards: Shards, images: int) -> jax.Array:
    """A shard's list with the numbers that its tiles have among those of all images."""
    if shards.count("b") == 1 or kind not in ("ids", "corners"):
        return value
    if kind == "ids":
        return jnp.where(value < 0, value, value + shards.place("b") * value.shape[1])
    image = value[..., 0]
    moved = jnp.where(image < 0, image, image + shards.place("b") * images)
    return value.at[..., 0].set(moved)
