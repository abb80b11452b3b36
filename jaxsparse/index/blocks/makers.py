"""Masks of ranges: causal, windows, documents, prefixes, padded batches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Int

from jaxsparse.core.variables import takes_variables
from jaxsparse.index.blocks.making import Size, grid_of, of_ranges, places
from jaxsparse.index.blocks.numbers import each, rows_of
from jaxsparse.index.blocks.ranges import edge_blocks
from jaxsparse.index.blocks.types import BlockMask


@takes_variables
def causal(
    q_len: int,
    kv_len: int | None = None,
    block_size: Size = 128,
    *,
    offset: Int[ArrayLike, "#B"] | int = 0,
) -> BlockMask:
    """Each query attends to the keys up to its own position.

    Args:
        q_len: number of queries.
        kv_len: number of keys; None: `q_len`.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        offset: the position of the first query among the keys: an int, int[] or int[B]; it may be
            traced. For queries that follow n cached keys it is n.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, q_len, kv_len)
    at = places(grid) + each("offset", offset)
    return of_ranges("causal", jnp.zeros_like(at), at + 1, grid, edge_blocks(grid))


@takes_variables
def sliding_window(
    q_len: int,
    kv_len: int | None = None,
    block_size: Size = 128,
    *,
    left: Int[ArrayLike, "#B"] | int,
    right: Int[ArrayLike, "#B"] | int = 0,
    offset: Int[ArrayLike, "#B"] | int = 0,
) -> BlockMask:
    """Each query attends to `left` keys before its position, to its own, and to `right` keys after.

    Args:
        q_len: number of queries.
        kv_len: number of keys; None: `q_len`.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        left: number of keys before the position: an int, int[] or int[B]; it may be traced. An int
            is 0 or more; of an array, a negative number moves the window's start past the position.
        right: number of keys after the position, likewise; 0, the default, is causal. For no limit
            on a side give `kv_len`.
        offset: the position of the first query among the keys, as in `causal`.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, q_len, kv_len)
    at = places(grid) + each("offset", offset)
    _check_side("left", left)
    _check_side("right", right)
    starts, stops = at - each("left", left), at + each("right", right) + 1
    starts, stops = jnp.broadcast_arrays(starts, stops)
    return of_ranges("sliding_window", starts, stops, grid, 2 * edge_blocks(grid))


def _check_side(name: str, value: object) -> None:
    """A number of keys; -1 is what other libraries call no limit."""
    if isinstance(value, (int, np.integer)) and value < 0:
        raise ValueError(f"{name}={value}; it takes 0 or more keys (no limit: {name}=kv_len)")


@takes_variables
def document(
    cu_seqlens: Int[ArrayLike, "*B n"],
    length: int,
    block_size: Size = 128,
    *,
    causal: bool = False,
) -> BlockMask:
    """Documents packed one after the other: each token attends to the tokens of its own document.

    Args:
        cu_seqlens: int[n + 1] or int[B, n + 1], ascending: the start of each of the n documents,
            then the end of the last. Documents may be empty. Tokens before the first start, and
            from the end on, attend to nothing.
        length: number of tokens, which are both queries and keys.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        causal: whether a token attends only to tokens up to its own position.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, length, None)
    edges = rows_of("cu_seqlens", cu_seqlens)
    if edges.shape[1] == 0:
        raise ValueError("cu_seqlens is empty; it takes n + 1 numbers for n documents")
    at = jnp.arange(grid.q_len, dtype=jnp.int32)
    after = jax.vmap(lambda row: jnp.searchsorted(row, at, side="right"))(edges)
    after = after.astype(jnp.int32)  # [B, T]: the place of the document's end
    found = jnp.concatenate([edges[:, :1], edges], 1)  # an empty one in front of the first
    starts = jnp.take_along_axis(found, after, 1)
    stops = jnp.take_along_axis(edges, jnp.minimum(after, edges.shape[1] - 1), 1)
    within = (after > 0) & (after < edges.shape[1])
    stops = jnp.where(within, jnp.minimum(stops, at + 1) if causal else stops, 0)
    documents = edges.shape[1] - 1
    bound = 2 * (grid.rows + grid.columns) + 4 * documents + (edge_blocks(grid) if causal else 0)
    return of_ranges("document", starts[:, None], stops[:, None], grid, bound)


@takes_variables
def prefix(
    prefix_lens: Int[ArrayLike, "*B"] | int, length: int, block_size: Size = 128
) -> BlockMask:
    """Each token attends to the whole prefix, and to the tokens up to its own position.

    Args:
        prefix_lens: number of tokens of the prefix: an int, int[] or int[B]; it may be traced.
        length: number of tokens, which are both queries and keys.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, length, None)
    stops = jnp.maximum(places(grid) + 1, each("prefix_lens", prefix_lens))
    return of_ranges("prefix", jnp.zeros_like(stops), stops, grid, edge_blocks(grid))


@takes_variables
def lengths(
    kv_lens: Int[ArrayLike, "*B"],
    q_len: int,
    kv_len: int | None = None,
    block_size: Size = 128,
    *,
    q_lens: Int[ArrayLike, "*B"] | None = None,
) -> BlockMask:
    """A padded batch: each query attends to the first `kv_lens` keys.

    Args:
        kv_lens: number of keys that count: int[] or int[B]; it may be traced.
        q_len: number of queries.
        kv_len: number of keys; None: `q_len`.
        block_size: one int, or (queries, keys): multiples of 16 from 16 to 256.
        q_lens: number of queries that count, int[] or int[B]; the others attend to nothing. None:
            all count.

    Raises:
        TypeError, ValueError: for a wrong shape, dtype or size, naming the argument.
    """
    grid = grid_of(block_size, q_len, kv_len)
    stops = each("kv_lens", kv_lens)
    stops = jnp.broadcast_to(stops, (*stops.shape[:2], grid.q_len))
    if q_lens is not None:
        stops = jnp.where(places(grid) < each("q_lens", q_lens), stops, 0)
    return of_ranges("lengths", jnp.zeros_like(stops), stops, grid, grid.rows + grid.columns)
