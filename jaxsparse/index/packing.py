"""`TokenPacking`: where the tokens of a batch that count lie, side by side and in order."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxsparse.index.block_masks import document
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.tile_index import build_index


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("rows", "count", "overflow", "cu_seqlens"),
    meta_fields=("shape",),
)
@dataclasses.dataclass(frozen=True, eq=False)
class TokenPacking:
    """The tokens of a mask bool[B, T] that count, listed in their order: what `js.pack_tokens`
    packed, and `js.unpack_tokens` needs. A pytree of fixed shape whatever the mask holds.

    Attributes:
        rows: int32[capacity], b*T + t of each packed token, ascending. After the last, numbers
            of B*T or more: a gather or scatter with `mode="fill"`, `mode="drop"` leaves them out.
        count: int32[], how many tokens are packed.
        overflow: bool[], there were more than the capacity; the first are packed.
        cu_seqlens: int32[B + 1], where each sequence starts among the packed tokens, and the end.
        shape: (B, T).
    """

    rows: Int32[Array, "capacity"]
    count: Int32[Array, ""]
    overflow: Bool[Array, ""]
    cu_seqlens: Int32[Array, "B+1"]
    shape: tuple[int, int]

    @property
    def capacity(self) -> int:
        """How many tokens there is room for."""
        return self.rows.shape[-1]

    @property
    def group_sizes(self) -> Int32[Array, "1"]:
        """int32[1], the count: `js.grouped_matmul(packed, w[None], packing.group_sizes)` is a
        dense layer that computes the packed rows only.
        """
        return self.count[None]

    def valid(self) -> Bool[Array, "capacity"]:
        """bool[capacity], the rows that hold a token."""
        return jnp.arange(self.capacity, dtype=jnp.int32) < self.count

    def positions(self) -> Int32[Array, "capacity"]:
        """int32[capacity], each token's place t in its sequence; 0 after the last."""
        return jnp.where(self.valid(), self.rows % max(self.shape[1], 1), 0)

    def block_mask(
        self, block_size: int | tuple[int, int] = 128, *, causal: bool = False
    ) -> BlockMask:
        """The mask with which the packed tokens attend within their sequences: to all tokens, or
        up to their own place.

        Raises:
            TypeError, ValueError: for another block size, naming it.
        """
        return document(self.cu_seqlens, self.capacity, block_size, causal=causal)


@functools.partial(jax.jit, static_argnums=1)
def packing_of(mask: jax.Array, capacity: int | None) -> TokenPacking:
    """The packing of a mask bool[B, T]."""
    batch, length = mask.shape
    index = build_index(mask[:, None], (1, 1), capacity, ordered=True)
    past = batch * length + jnp.arange(index.capacity, dtype=jnp.int32)
    rows = jnp.where(index.ids < 0, past, index.ids)
    ends = jnp.cumsum(mask.sum(1, dtype=jnp.int32), dtype=jnp.int32)
    starts = jnp.minimum(jnp.pad(ends, (1, 0)), index.capacity)
    return TokenPacking(rows, starts[-1], index.overflow, starts, (batch, length))
