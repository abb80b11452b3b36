"""`KeptBlocks`: which blocks of a weight exist. Their values lie side by side, and nothing is
stored for the others: not the weight, not its gradient, not what an optimiser remembers of it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Shaped

from jaxsparse.core.checks import as_array, check_array
from jaxsparse.core.differentiable import differentiable
from jaxsparse.core.integers import check_count, check_static, static_int
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.index.tile_index import build_index
from jaxsparse.select.config import settings

Pair = tuple[int, int]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("ids", "slots", "count", "overflow"),
    meta_fields=("shape", "granularity"),
)
@dataclasses.dataclass(frozen=True, eq=False)
class KeptBlocks:
    """The blocks of a matrix that a mask keeps, in order: `js.kept_blocks` makes it from a mask. A
    pytree whose shapes do not depend on the mask's values.

    The values of a weight are an ordinary array [capacity, rows, columns] of blocks. Optimisers,
    gradients and checkpoints see that array alone, so all of them shrink with the capacity.

    Attributes:
        ids: int32[capacity], the block i * columns_of_blocks + j in each slot, ascending; -1 in the
            slots that are free.
        slots: int32[rows of blocks, columns of blocks], the slot of each block; `capacity` where
            the block is not kept.
        count: int32[], how many blocks are kept.
        overflow: bool[], whether the mask kept more blocks than the capacity; then only the first
            are kept.
        shape: (rows, columns) of the matrix.
        granularity: (rows, columns) of a block.
    """

    ids: Int32[Array, "capacity"]
    slots: Int32[Array, "rows columns"]
    count: Int32[Array, ""]
    overflow: Bool[Array, ""]
    shape: Pair
    granularity: Pair

    @property
    def capacity(self) -> int:
        """The most blocks that fit: the first axis of the values."""
        return self.ids.shape[-1]

    @property
    def mask(self) -> Bool[Array, "rows columns"]:
        """bool, the blocks that are kept, as `js.masked_matmul` takes it."""
        return self.slots < self.capacity

    def take(self, weight: Shaped[ArrayLike, "m k"]) -> Shaped[Array, "capacity rows columns"]:
        """The kept blocks of a matrix; zero in free slots, and past the edges of the matrix.
        Differentiable.

        Args:
            weight: any dtype, [*shape].

        Raises:
            TypeError, ValueError: for another shape.
        """
        check_array("weight", weight)
        weight = as_array("weight", weight)
        if weight.shape != self.shape:
            raise ValueError(f"weight has shape {weight.shape}; these blocks are of {self.shape}")
        return _take(self._facts, weight, self.ids, self.slots)

    def dense(self, values: Shaped[ArrayLike, "capacity rows columns"]) -> Shaped[Array, "m k"]:
        """The matrix with these blocks, zero elsewhere. Differentiable.

        Args:
            values: any dtype, [capacity, *granularity].

        Raises:
            TypeError, ValueError: for another shape.
        """
        return _dense(self._facts, self._checked("values", values), self.ids, self.slots)

    def move(
        self, values: Shaped[ArrayLike, "old rows columns"], old: KeptBlocks
    ) -> Shaped[Array, "capacity rows columns"]:
        """The values of the blocks that `old` kept, in the slots that they have here; zero for
        blocks that are new. The same call moves what an optimiser remembers. Not differentiable.

        Args:
            values: any dtype, [old.capacity, *granularity].
            old: the blocks of `values`, of the same shape and granularity.

        Raises:
            TypeError, ValueError: for another shape, or blocks of another matrix.
        """
        if not isinstance(old, KeptBlocks):
            raise TypeError(f"old must be the KeptBlocks of values, not {type(old).__name__}")
        if old._facts != self._facts:
            raise ValueError(
                f"old has blocks of {old.granularity} in {old.shape}; these are {self.granularity} "
                f"in {self.shape}"
            )
        return _move(old._checked("values", values), old.slots, self.ids)

    @property
    def _facts(self) -> tuple[Pair, Pair]:
        return self.shape, self.granularity

    def _checked(self, name: str, values: Any) -> jax.Array:
        check_array(name, values)
        array: jax.Array = as_array(name, values)
        needs = (self.capacity, *self.granularity)
        if array.shape != needs:
            raise ValueError(f"{name} has shape {array.shape}; the kept blocks need {needs}")
        return array


@takes_variables
def kept_blocks(
    mask: Bool[ArrayLike, "rows columns"],
    shape: tuple[int, int],
    granularity: tuple[int, int],
    *,
    capacity: int | None = None,
) -> KeptBlocks:
    """List the blocks of a matrix that a mask keeps, on the device. The mask is data: one
    compilation serves every mask.

    Args:
        mask: bool[ceil(m/rows), ceil(k/columns)], as `js.masked_matmul` takes it.
        shape: (m, k) of the matrix.
        granularity: (rows, columns) of a block.
        capacity: how many blocks there is room for; None: all of them. If the mask keeps more, only
            the first are kept, `overflow` is set, and `js.checked()` raises.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or number, naming the argument.
    """
    size, block = _pair("shape", shape, 0), _pair("granularity", granularity, 1)
    check_array("mask", mask)
    mask = as_array("mask", mask)
    if mask.dtype != np.bool_:
        raise TypeError(f"mask has dtype {mask.dtype}; it takes bool: `mask != 0` makes one")
    needs = tuple(-(-n // g) for n, g in zip(size, block, strict=True))
    if mask.shape != needs:
        raise ValueError(f"mask has shape {mask.shape}; blocks of {block} in {size} need {needs}")
    room = math.prod(needs) if capacity is None else check_count("capacity", capacity)
    room = min(room, math.prod(needs))
    if settings().checked:
        raise_on_host(functools.partial(_raise_if, room), mask.sum(dtype=jnp.int32))
    ids, slots, count, overflow = _listed(mask, room)
    return KeptBlocks(ids, slots, count, overflow, size, block)


def _raise_if(room: int, kept: np.ndarray) -> None:
    if kept > room:
        raise ValueError(
            f"kept_blocks: the mask keeps {kept} blocks, and capacity={room}: those past it were "
            "left out"
        )


def _pair(name: str, value: object, least: int) -> Pair:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} takes two ints (rows, columns), not {value!r}")
    for size in value:
        check_static(name, size)
    try:
        rows, columns = map(static_int, value)
    except TypeError:
        raise TypeError(f"{name} takes two ints (rows, columns), not {value!r}") from None
    if min(rows, columns) < least or max(rows, columns) >= 2**31:
        raise ValueError(f"{name}={(rows, columns)}; it takes sizes from {least} to 2^31 - 1")
    return rows, columns


@functools.partial(jax.jit, static_argnums=1)
def _listed(mask: jax.Array, room: int) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(ids, slots, count, overflow) of a mask with room for so many blocks."""
    if not room:
        empty = jnp.zeros(0, jnp.int32)
        return empty, jnp.zeros(mask.shape, jnp.int32), jnp.int32(0), mask.any()
    index = build_index(mask[None], (1, 1), room, ordered=True)
    ranks = jnp.cumsum(mask.reshape(-1), dtype=jnp.int32).reshape(mask.shape) - 1
    slots = jnp.where(mask, jnp.minimum(ranks, room), room)
    return index.ids, slots, jnp.minimum(index.count, room), index.overflow


@differentiable()
def _dense(
    facts: tuple[Pair, Pair], values: jax.Array, ids: jax.Array, slots: jax.Array
) -> jax.Array:
    """Blocks [capacity, gm, gk] to [m, k]. A gather by slots: its transpose is `_take`."""
    (m, k), (rows, columns) = facts
    if not values.size:
        return jnp.zeros((m, k), values.dtype)
    high, wide = slots.shape
    placed = values.at[slots].get(mode="fill", fill_value=0)
    return placed.swapaxes(1, 2).reshape(high * rows, wide * columns)[:m, :k]


@differentiable()
def _take(
    facts: tuple[Pair, Pair], weight: jax.Array, ids: jax.Array, slots: jax.Array
) -> jax.Array:
    """[m, k] to blocks [capacity, gm, gk]. A gather by ids: its transpose is `_dense`."""
    (m, k), (rows, columns) = facts
    high, wide = slots.shape
    if not weight.size or not ids.size:
        return jnp.zeros((*ids.shape, rows, columns), weight.dtype)
    padded = jnp.pad(weight, ((0, high * rows - m), (0, wide * columns - k)))
    blocks = padded.reshape(high, rows, wide, columns)
    kept = jnp.maximum(ids, 0)
    found = blocks[kept // wide, :, kept % wide]
    return jnp.where((ids >= 0)[:, None, None], found, jnp.zeros((), weight.dtype))


def _forward(turn: Any, facts: Any, value: Any, ids: Any, slots: Any) -> Any:
    return turn(facts, value, ids, slots), (ids, slots)


def _tangent(turn: Any, facts: Any, saved: Any, tangents: Any) -> Any:
    return None if tangents[0] is None else turn(facts, tangents[0], *saved)


def _backward(turn: Any, facts: Any, saved: Any, cotangent: Any) -> Any:
    return turn(facts, cotangent, *saved), None, None


for _one, _other in ((_dense, _take), (_take, _dense)):
    _one.defrules(
        functools.partial(_forward, _one),
        functools.partial(_tangent, _one),
        functools.partial(_backward, _other),
    )


@jax.jit
def _move(values: jax.Array, slots: jax.Array, ids: jax.Array) -> jax.Array:
    """Values [old capacity, ...] of blocks in these slots, to the blocks that ids list."""
    if not values.size or not ids.size:
        return jnp.zeros((*ids.shape, *values.shape[1:]), values.dtype)
    source = jnp.where(ids >= 0, slots.reshape(-1)[jnp.maximum(ids, 0)], values.shape[0])
    return values.at[source].get(mode="fill", fill_value=0)
