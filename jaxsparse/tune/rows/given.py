"""What a function's run gives its sites: the masks, lists and indices that an op without a
`TileIndex` is measured on.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsparse.index import TileIndex
from jaxsparse.select.sites import Site, listening

#: Ops whose time depends on the values of their first operand, of all operands. Of every other op
#: only arrays that are not of floats are kept; the rest is noise of the same shapes.
FIRST, ALL = ("sparse_ffn",), ("bounded_matmul", "bounded_network")


@dataclasses.dataclass(frozen=True, eq=False)
class Given:
    """What a site was given in one run.

    Attributes:
        leaves: place among the operands' leaves -> array, of those that are kept.
        count: what the choice among its variants depends on.
    """

    leaves: Mapping[int, np.ndarray]
    count: int

    @property
    def digest(self) -> str:
        """Equal where the content is."""
        found = hashlib.sha256(repr(self.count).encode())
        for place, leaf in sorted(self.leaves.items()):
            found.update(f"{place} {leaf.dtype} {leaf.shape}".encode() + leaf.tobytes())
        return found.hexdigest()[:16]


def given(fn: Callable[..., object], *args: object) -> list[tuple[Site, Given]]:
    """Run `fn(*args)` and keep what each site without a `TileIndex` was given, in the order in
    which the device came to them.
    """
    found: list[tuple[Site, Given]] = []

    def see(site: Site, operands: tuple[Any, ...], count: jax.Array) -> None:
        if len(site.branches) < 2 or any(isinstance(o, TileIndex) for o in operands):
            return
        leaves = jax.tree.leaves(operands)
        places = [i for i, leaf in enumerate(leaves) if kept(site.problem.op, i, leaf)]

        def keep(count: Any, *arrays: Any) -> None:
            copies = {i: np.array(a) for i, a in zip(places, arrays, strict=True)}
            found.append((site, Given(copies, int(count))))

        jax.debug.callback(keep, count, *(leaves[i] for i in places))

    with listening(see):
        jax.block_until_ready(jax.jit(lambda *args: fn(*args))(*args))
        jax.effects_barrier()
    return found


def kept(op: str, place: int, leaf: Any) -> bool:
    """Whether the content of an operand's leaf is part of what an op is measured on."""
    floats = jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
    return not floats or op in ALL or (op in FIRST and place == 0)


def runs(args: tuple[object, ...]) -> bool:
    """Whether the arguments are arrays, not shapes alone: a function can run on them."""
    return not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(args))
