"""`TokenPacking`: where the tokens of a batch that count are, side by side and in order."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxsparse.ffi import Implementation
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
    """Which tokens of a mask bool[B, T] are packed, in order: `js.pack_tokens` returns it, and
    `js.unpack_tokens` takes it. A pytree whose shapes do not depend on the mask's values.

    Attributes:
        rows: int32[capacity], b*T + t of each packed token, ascending. After the last token, values
            of B*T or more, which a gather with `mode="fill"` or a scatter with `mode="drop"` skips.
        count: int32[], how many tokens are packed.
        overflow: bool[], whether more tokens counted than the capacity; then only the first are
            packed.
        cu_seqlens: int32[B + 1], the start of each sequence in the packed rows, then the end.
        shape: (B, T).
    """

    rows: Int32[Array, "capacity"]
    count: Int32[Array, ""]
    overflow: Bool[Array, ""]
    cu_seqlens: Int32[Array, "B+1"]
    shape: tuple[int, int]

    @property
    def capacity(self) -> int:
        """The number of packed rows, which is the most tokens that fit."""
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
        """int32[capacity], each token's position t in its sequence; 0 after the last token."""
        return jnp.where(self.valid(), self.rows % max(self.shape[1], 1), 0)

    def block_mask(
        self, block_size: int | tuple[int, int] = 128, *, causal: bool = False
    ) -> BlockMask:
        """The attention mask of the packed rows, a BlockMask of `capacity` queries and keys: a
        token attends to all tokens of its own sequence.

        Args:
            block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
            causal: whether a token attends only to tokens up to its own position.

        Raises:
            TypeError, ValueError: for another block size, naming it.
        """
        return document(self.cu_seqlens, self.capacity, block_size, causal=causal)


@functools.partial(jax.jit, static_argnums=(1, 2))
def packing_of(
    mask: jax.Array, capacity: int | None, implementation: Implementation = None
) -> TokenPacking:
    """The packing of a mask bool[B, T]; `implementation` makes the list of its tokens."""
    batch, length = mask.shape
    options = {"ordered": True, "implementation": implementation}
    index = build_index(mask[:, None], (1, 1), capacity, **options)
    past = batch * length + jnp.arange(index.capacity, dtype=jnp.int32)
    rows = jnp.where(index.ids < 0, past, index.ids)
    ends = jnp.cumsum(mask.sum(1, dtype=jnp.int32), dtype=jnp.int32)
    starts = jnp.minimum(jnp.pad(ends, (1, 0)), index.capacity)
    return TokenPacking(rows, starts[-1], index.overflow, starts, (batch, length))
