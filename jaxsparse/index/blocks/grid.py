"""The blocks of an attention mask: their sizes, their number, the positions that they hold."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.integers import check_count, check_static, static_int

SMALLEST, LARGEST, STEP = 16, 256, 16


class Grid(NamedTuple):
    """Static: queries in blocks of `block_q`, keys in blocks of `block_kv`; the last may be cut."""

    block_q: int
    block_kv: int
    q_len: int
    kv_len: int

    @property
    def rows(self) -> int:
        """Blocks of queries."""
        return -(-self.q_len // self.block_q)

    @property
    def columns(self) -> int:
        """Blocks of keys."""
        return -(-self.kv_len // self.block_kv)

    @property
    def row_words(self) -> int:
        """Words of a query's bits in a block."""
        return -(-self.block_kv // 32)

    def q_inside(self) -> np.ndarray:
        """bool[rows, block_q]: the positions below q_len."""
        return _inside(self.rows, self.block_q, self.q_len)

    def kv_inside(self) -> np.ndarray:
        """bool[columns, block_kv]: the positions below kv_len."""
        return _inside(self.columns, self.block_kv, self.kv_len)

    def split(self, ids: jax.Array, heads: int) -> tuple[jax.Array, ...]:
        """(batch, head, row, column) of a block's number, int32, in an array [b, heads, Q, C]."""
        rows, columns = max(self.rows, 1), max(self.columns, 1)
        row = ids // columns
        image = row // rows
        return image // max(heads, 1), image % max(heads, 1), row % rows, ids % columns


def _inside(blocks: int, size: int, length: int) -> np.ndarray:
    return (np.arange(blocks * size) < length).reshape(blocks, size)


def make_grid(block_size: Any, q_len: Any, kv_len: Any) -> Grid:
    """The grid of what a user gave.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    block_q, block_kv = check_block_size(block_size)
    return Grid(block_q, block_kv, check_count("q_len", q_len), check_count("kv_len", kv_len))


def check_block_size(block_size: Any) -> tuple[int, int]:
    """(block_q, block_kv) of one int for both, or a pair.

    Raises:
        TypeError, ValueError: unless both are multiples of 16 from 16 to 256.
    """
    check_static("block_size", block_size)
    takes = (
        f"an int or a pair (block_q, block_kv), multiples of {STEP} from {SMALLEST} to {LARGEST}"
    )
    pair = block_size if isinstance(block_size, (tuple, list)) else (block_size, block_size)
    try:
        sizes = [static_int(n) for n in pair]
    except TypeError:
        raise TypeError(f"block_size={block_size!r}; it takes {takes}") from None
    if len(sizes) != 2 or any(n % STEP or not SMALLEST <= n <= LARGEST for n in sizes):
        raise ValueError(f"block_size={block_size!r}; it takes {takes}")
    return sizes[0], sizes[1]


def check_number(batch: int, heads: int, grid: Grid) -> None:
    """Blocks are numbered in int32.

    Raises:
        ValueError: for 2^31 blocks or more.
    """
    blocks = math.prod((batch, heads, grid.rows, grid.columns))
    if blocks >= 2**31:
        raise ValueError(
            f"{batch} x {heads} masks of {grid.rows} x {grid.columns} blocks are {blocks} blocks; "
            "2^31 - 1 at most: take larger blocks, or share the mask among heads"
        )


def pack_bits(bits: jax.Array) -> jax.Array:
    """bool[..., n] -> uint32[..., ceil(n/32)], fused with what computes the bits."""
    *axes, n = bits.shape
    words = -(-n // 32)
    bits = jnp.pad(bits, [(0, 0)] * len(axes) + [(0, 32 * words - n)])
    split = bits.reshape(*axes, words, 32).astype(jnp.uint32)
    places = jnp.arange(32, dtype=jnp.uint32).reshape(*[1] * (split.ndim - 1), 32)
    return (split << places).sum(-1, dtype=jnp.uint32)
