"""`BlockMask`: which blocks of an attention count, a value to build once for many layers."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Int32, UInt32

from jaxsparse.core.checks import check_rank, check_whole
from jaxsparse.core.integers import as_int32
from jaxsparse.core.variables import takes_variables
from jaxsparse.index.blocks import combine
from jaxsparse.index.blocks.checks import check_capacity, check_kind, warn_lost
from jaxsparse.index.blocks.dense import arrays_of_dense, dense_of
from jaxsparse.index.blocks.evaluate import MaskMod, check_mod
from jaxsparse.index.blocks.formats import BlockLists, holds_at, lists_of
from jaxsparse.index.blocks.given import arrays_of_lists, check_bits, check_full, check_pair
from jaxsparse.index.blocks.grid import Grid, check_number, make_grid
from jaxsparse.index.blocks.lists import (
    FULL,
    NONE,
    MaskArrays,
    both_lists,
    build,
    codes_of,
    is_known,
)
from jaxsparse.index.blocks.numbers import NUMBERED, each
from jaxsparse.index.blocks.parts import check_blocks, codes_at, taken_grid
from jaxsparse.index.blocks.rows import arrays_of_row, row_grid

_DATA = MaskArrays._fields
_META = ("block_size", "q_len", "kv_len")


@functools.partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BlockMask:
    """An attention mask bool[b, h, q_len, kv_len] in blocks: lists of the blocks that count, and
    bits for those that count in part. A pytree whose shapes do not depend on the mask's values.

    b is the batch, or 1 for all; h is the heads, or 1 for all. Q and C are the numbers of blocks
    of queries and of keys. The last block may reach past the end; those positions never count.

    Attributes:
        kv_counts: int32[b, h, Q], how many blocks of keys a block of queries attends to.
        kv_blocks: int32[b, h, Q, C], the numbers of these blocks, ascending; undefined after the
            last.
        kv_slots: int32[b, h, Q, C], -1 for a full block, else the row of `words` with its bits;
            undefined after the last.
        q_counts, q_blocks, q_slots: int32[b, h, C], int32[b, h, C, Q] twice, the same blocks listed
            for each block of keys.
        words: uint32[slots, block_q, ceil(block_kv/32)], the bits of partial blocks, little-endian
            along the keys; 1 means that the query attends to the key. One slot or more.
        overflow: bool[], whether part of the mask was left out: partial blocks beyond the capacity,
            or entries of given lists that are out of range. They attend to nothing.
        block_size: (block_q, block_kv), multiples of 16 from 16 to 256.
        q_len: number of queries.
        kv_len: number of keys.

    Under `vmap` the arrays have a leading batch axis, as with any pytree.
    """

    kv_counts: Int32[Array, "b h Q"]
    kv_blocks: Int32[Array, "b h Q C"]
    kv_slots: Int32[Array, "b h Q C"]
    q_counts: Int32[Array, "b h C"]
    q_blocks: Int32[Array, "b h C Q"]
    q_slots: Int32[Array, "b h C Q"]
    words: UInt32[Array, "slots block_q words"]
    overflow: Bool[Array, ""]
    block_size: tuple[int, int]
    q_len: int
    kv_len: int

    @classmethod
    @takes_variables
    def from_dense(
        cls,
        mask: Bool[ArrayLike, "#B #H T S"],
        block_size: int | tuple[int, int] = 128,
        *,
        partial_capacity: int | None = None,
    ) -> BlockMask:
        """The block mask of a dense mask.

        Args:
            mask: bool[B or 1, H or 1, T, S]; True where query T attends to key S.
            block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
            partial_capacity: for how many partial blocks to reserve bits; None: as many as there
                are, and inside jit one for every block.

        Raises:
            TypeError, ValueError: for another dtype, rank or block size, naming the argument.
        """
        check_rank("mask", mask, 4, "[B or 1, H or 1, T, S]")
        mask = check_bits("mask", mask)
        check_whole("mask", mask, NUMBERED)
        grid = make_grid(block_size, mask.shape[2], mask.shape[3])
        check_number(mask.shape[0], mask.shape[1], grid)
        capacity = check_capacity(partial_capacity)
        return mask_of("BlockMask.from_dense", arrays_of_dense(mask, grid, capacity), grid)

    @classmethod
    @takes_variables
    def from_block_bits(
        cls,
        bits: Bool[ArrayLike, "#B #H Q C"],
        block_size: int | tuple[int, int],
        q_len: int,
        kv_len: int,
    ) -> BlockMask:
        """A mask of full blocks only, from one bool for each block.

        Args:
            bits: bool[B or 1, H or 1, Q, C], Q = ceil(q_len / block_q), C = ceil(kv_len /
                block_kv).
            block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
            q_len: number of queries.
            kv_len: number of keys.

        Raises:
            TypeError, ValueError: for another dtype, shape or block size, naming the argument.
        """
        check_rank("bits", bits, 4, "[B or 1, H or 1, Q, C]")
        bits = check_bits("bits", bits)
        grid = make_grid(block_size, q_len, kv_len)
        if bits.shape[2:] != (grid.rows, grid.columns):
            raise ValueError(
                f"bits has shape {bits.shape}; {q_len} x {kv_len} positions in blocks of "
                f"{grid.block_q} x {grid.block_kv} need (B, H, {grid.rows}, {grid.columns})"
            )
        arrays = build(grid, bits, bits, lambda ids: ids, 0)
        return mask_of("BlockMask.from_block_bits", arrays, grid)

    @classmethod
    @takes_variables
    def from_lists(
        cls,
        kv_num_blocks: Int[ArrayLike, "#B #H Q"],
        kv_indices: Int[ArrayLike, "#B #H Q n"],
        full_kv_num_blocks: Int[ArrayLike, "#B #H Q"] | None = None,
        full_kv_indices: Int[ArrayLike, "#B #H Q m"] | None = None,
        *,
        block_size: int | tuple[int, int],
        q_len: int,
        kv_len: int,
        mask_mod: MaskMod | None = None,
        partial_capacity: int | None = None,
    ) -> BlockMask:
        """The mask of FlexAttention's lists (`BlockMask.from_kv_blocks`), or of FlashAttention's
        (`mask_block_cnt`, `mask_block_idx`, `full_block_cnt`, `full_block_idx`, in this order).

        Args:
            kv_num_blocks: integers [B or 1, H or 1, Q], how many partial blocks of keys each block
                of queries has.
            kv_indices: integers [B or 1, H or 1, Q, n], their numbers in any order; entries after
                the count are ignored.
            full_kv_num_blocks: the same for full blocks; None: there are no full blocks.
            full_kv_indices: integers [B or 1, H or 1, Q, m].
            block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
            q_len: number of queries.
            kv_len: number of keys.
            mask_mod: which positions of the partial blocks count, as in `create_block_mask`; None:
                all of them, so that these blocks are full, too.
            partial_capacity: as in `create_block_mask`.

        Returns:
            A BlockMask. Inside jit the lists' values are not known. There, an entry out of range is
            ignored, a count is limited to the list, and a block that is listed twice counts once
            (as full, if it is listed as full); in each of these cases `overflow` is set.

        Raises:
            TypeError, ValueError: for another dtype or shape; outside of jit also for an entry out
                of range, a block that is listed twice, or a count larger than the list.
        """
        grid = make_grid(block_size, q_len, kv_len)
        if mask_mod is not None:
            check_mod(mask_mod)
        partial = check_pair("kv_num_blocks", kv_num_blocks, "kv_indices", kv_indices, grid)
        full = check_full(full_kv_num_blocks, full_kv_indices, partial[0].shape, grid)
        arrays = arrays_of_lists(partial, full, grid, mask_mod, check_capacity(partial_capacity))
        return mask_of("BlockMask.from_lists", arrays, grid)

    def to_lists(self) -> BlockLists:
        """The mask as lists of partial and of full blocks, in the order of FlexAttention's and
        FlashAttention's arguments. `mask_mod` says which positions of partial blocks count.
        """
        return lists_of(self.codes())

    def mask_mod(
        self, b: ArrayLike, h: ArrayLike, q_idx: ArrayLike, kv_idx: ArrayLike
    ) -> Bool[Array, "..."]:
        """Whether queries attend to keys. The indices are integers that broadcast, and must be in
        range; where the mask is shared (b or h is 1), any batch or head index is valid.
        """
        given = {"b": b, "h": h, "q_idx": q_idx, "kv_idx": kv_idx}
        at = (as_int32(name, value) for name, value in given.items())
        return holds_at(self.codes(), self.words, *at, self.block_size)

    def at_query(self, q_idx: Int[ArrayLike, "#B"] | int) -> BlockMask:
        """The mask of one query, bool[B or b, h, 1, kv_len], as a step of decoding needs it.

        Args:
            q_idx: the query's position: an int, int[] or int[B]; it may be traced. A query outside
                of [0, q_len) attends to nothing.

        Returns:
            A BlockMask with block_size (16, block_kv).

        Raises:
            TypeError, ValueError: for another dtype or shape.
        """
        at = each("q_idx", q_idx)
        if at.shape[0] != 1 and self.shape[0] not in (1, at.shape[0]):
            raise ValueError(f"q_idx has {at.shape[0]} entries; the mask is of {self.shape}")
        arrays = arrays_of_row(self.codes(), self.words, at, self._grid)
        arrays = arrays._replace(overflow=arrays.overflow | self.overflow)
        return mask_of("BlockMask.at_query", arrays, row_grid(self._grid))

    @takes_variables
    def take(
        self,
        *,
        q_blocks: Int[ArrayLike, "n"] | None = None,
        kv_blocks: Int[ArrayLike, "m"] | None = None,
    ) -> BlockMask:
        """The mask of some blocks of queries and of keys, in the order given: the rows of one
        device, or of tokens whose blocks were permuted. It shares the bits of this mask.

        Args:
            q_blocks: int[n], numbers of blocks of queries; they may be traced. A number that does
                not exist, such as -1, stands for queries that attend to nothing. None: all blocks.
            kv_blocks: int[m], numbers of blocks of keys, likewise.

        Returns:
            A BlockMask of n * block_q queries and m * block_kv keys.

        Raises:
            TypeError, ValueError: for another dtype or rank; for a length that is not a multiple of
                the blocks.
        """
        q_blocks, kv_blocks = (
            check_blocks("q_blocks", q_blocks),
            check_blocks("kv_blocks", kv_blocks),
        )
        grid, codes = taken_grid(self._grid, q_blocks, kv_blocks), self.codes()
        codes = codes if q_blocks is None else codes_at(codes, q_blocks, 2)
        codes = codes if kv_blocks is None else codes_at(codes, kv_blocks, 3)
        check_number(codes.shape[0], codes.shape[1], grid)
        arrays = MaskArrays(*both_lists(codes), words=self.words, overflow=self.overflow)
        return mask_of("BlockMask.take", arrays, grid)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(b, h, q_len, kv_len)."""
        b, h = self.kv_counts.shape[-3:-1]
        return b, h, self.q_len, self.kv_len

    @property
    def grid(self) -> tuple[int, int]:
        """(Q, C): blocks of queries, blocks of keys."""
        made = self._grid
        return made.rows, made.columns

    @property
    def slots(self) -> int:
        """For how many partial blocks there are bits."""
        return self.words.shape[-3]

    @property
    def _grid(self) -> Grid:
        return Grid(*self.block_size, self.q_len, self.kv_len)

    def codes(self) -> Int32[Array, "b h Q C"]:
        """The state of every block, int32[b, h, Q, C]: -2 is not listed, -1 is full, and any other
        is the row of `words` with its bits.
        """
        check_kind("the mask", self)
        lists = (self.kv_counts, self.kv_blocks, self.kv_slots)
        return codes_of(*lists, self._grid.columns, self.slots)

    def block_bits(self) -> Bool[Array, "b h Q C"]:
        """The listed blocks, full or partial, bool[b, h, Q, C]."""
        return self.codes() != NONE

    def full_block_bits(self) -> Bool[Array, "b h Q C"]:
        """The blocks in which every query attends to every key, bool[b, h, Q, C]."""
        return self.codes() == FULL

    def to_dense(self) -> Bool[Array, "b h T S"]:
        """The mask, bool[b, h, q_len, kv_len]."""
        return dense_of(self.codes(), self.words, self._grid)

    def sparsity(self) -> Float[Array, ""]:
        """The share of blocks that are left out, float32[] from 0 to 1 (FlexAttention's is in
        percent). 0 for a mask without blocks.
        """
        check_kind("the mask", self)
        listed = self.kv_counts.sum(dtype=jnp.float32)
        blocks = max(self.kv_blocks.size, 1)
        return 1 - listed / blocks if self.kv_blocks.size else jnp.zeros((), jnp.float32)

    def __and__(self, other: BlockMask) -> BlockMask:
        """The positions that are in both masks; a batch or heads of 1 are broadcast."""
        return self._joined(other, "&")

    def __or__(self, other: BlockMask) -> BlockMask:
        """The positions that are in one mask or both; a batch or heads of 1 are broadcast."""
        return self._joined(other, "|")

    def _joined(self, other: Any, sign: str) -> BlockMask:
        if not isinstance(other, BlockMask):
            raise TypeError(
                f"{sign} takes two BlockMasks, not {type(other).__name__}: "
                "js.BlockMask.from_dense makes one of a dense mask"
            )
        mine, its = ((m.block_size, m.q_len, m.kv_len) for m in (self, other))
        fits = all(
            1 in pair or pair[0] == pair[1]
            for pair in zip(self.shape[:2], other.shape[:2], strict=True)
        )
        if mine != its or not fits:
            fix = f": make both with block_size={self.block_size}" if mine[0] != its[0] else ""
            raise ValueError(f"{sign} of {self} and {other}: blocks and shapes must agree{fix}")
        join = combine.both if sign == "&" else combine.either
        mine_coded, its_coded = ((m.codes(), m.words) for m in (self, other))
        arrays = join(mine_coded, its_coded, self._grid, self.overflow | other.overflow)
        return mask_of(f"BlockMask {sign}", arrays, self._grid)

    def __repr__(self) -> str:
        b, h = self.shape[:2]
        head = (
            f"BlockMask(shape={(b, h, self.q_len, self.kv_len)}, block_size={self.block_size}, "
            f"slots={self.slots}"
        )
        known = isinstance(self.kv_counts, (np.ndarray, jax.Array)) and all(
            is_known(value) for value in (self.kv_counts, self.overflow)
        )
        if not known or self.kv_counts.ndim != 3:
            return head + ")"
        more = ", overflow" if bool(self.overflow) else ""
        listed = int(np.asarray(self.kv_counts).sum(dtype=np.int64))
        return f"{head}, blocks={listed} of {self.kv_blocks.size}{more})"


def mask_of(maker: str, arrays: MaskArrays, grid: Grid) -> BlockMask:
    """The mask with these arrays; under `js.checked()` one that lost something raises."""
    warn_lost(maker, arrays.overflow)
    return BlockMask(*arrays, (grid.block_q, grid.block_kv), grid.q_len, grid.kv_len)
