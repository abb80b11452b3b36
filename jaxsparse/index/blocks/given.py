"""Arrays of a caller that describe a mask: bits of blocks, and lists, which may be wrong."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.checks import as_array, check_array
from jaxsparse.core.integers import as_int32
from jaxsparse.index.blocks.evaluate import MaskMod, words_of
from jaxsparse.index.blocks.grid import Grid, check_number
from jaxsparse.index.blocks.lists import MaskArrays, build, is_known
from jaxsparse.index.blocks.numbers import all_blocks

#: counts int32[b, h, Q], indices int32[b, h, Q, n].
Pair = tuple[jax.Array, jax.Array]
_PARTIAL, _FULL = ("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices")


def check_bits(name: str, bits: Any) -> jax.Array:
    """`bits` as a bool array.

    Raises:
        TypeError: for another dtype, naming the argument.
    """
    bits = as_array(name, bits)
    if bits.dtype != np.bool_:
        raise TypeError(f"{name} has dtype {bits.dtype}; it takes bool: `{name} != 0` makes one")
    return bits


def check_pair(name: str, counts: Any, of: str, indices: Any, grid: Grid) -> Pair:
    """`counts` [b, h, Q] and `indices` [b, h, Q, n] as int32.

    Raises:
        TypeError, ValueError: for another dtype or shape, naming the argument.
    """
    check_array(name, counts)
    check_array(of, indices)
    counts, indices = as_int32(name, counts), as_int32(of, indices)
    counts, indices = all_blocks(name, counts), all_blocks(of, indices)
    if counts.ndim != 3 or counts.shape[2] != grid.rows:
        raise ValueError(
            f"{name} has shape {counts.shape}; {grid.q_len} queries in blocks of {grid.block_q} "
            f"need (B, H, {grid.rows})"
        )
    if indices.ndim != 4 or indices.shape[:3] != counts.shape:
        needed = ", ".join(map(str, counts.shape))
        raise ValueError(f"{of} has shape {indices.shape}; {name} needs ({needed}, n)")
    return counts, indices


def check_full(counts: Any, indices: Any, shape: tuple[int, ...], grid: Grid) -> Pair | None:
    """The lists of full blocks, beside counts of partial blocks of `shape`; None without them.

    Raises:
        TypeError, ValueError: for another dtype or shape, or one without the other.
    """
    if counts is None and indices is None:
        return None
    if counts is None or indices is None:
        raise ValueError("full_kv_num_blocks and full_kv_indices: give both, or neither")
    pair = check_pair(_FULL[0], counts, _FULL[1], indices, grid)
    if pair[0].shape != shape:
        raise ValueError(f"{_FULL[0]} has shape {pair[0].shape}; {_PARTIAL[0]} has {shape}")
    return pair


def arrays_of_lists(
    partial: Pair, full: Pair | None, grid: Grid, mask_mod: MaskMod | None, capacity: int | None
) -> MaskArrays:
    """The arrays of the mask that lists describe; without `mask_mod` every block is full.

    Raises:
        ValueError: for lists that do not hold, where that is known; else the mask is flagged.
    """
    heads = partial[0].shape[1]
    check_number(partial[0].shape[0], heads, grid)
    active, flag = _listed(_PARTIAL, partial, grid.columns)
    whole = jnp.zeros_like(active)
    if full is not None:
        whole, more = _listed(_FULL, full, grid.columns)
        shared = (active & whole).any()
        if is_known(shared) and shared:
            raise ValueError("kv_indices and full_kv_indices list the same block")
        flag |= more | shared
    if mask_mod is None:
        listed = active | whole
        return build(grid, listed, listed, lambda ids: ids, 0, flag)
    words = functools.partial(words_of, mask_mod, heads=heads, grid=grid)
    return build(grid, active | whole, whole, words, capacity, flag)


class _Fault(NamedTuple):
    """bool[] each: what is wrong with a list."""

    overfull: jax.Array
    wild: jax.Array
    twice: jax.Array


@functools.partial(jax.jit, static_argnums=2)
def _entries(counts: jax.Array, indices: jax.Array, columns: int) -> tuple[jax.Array, _Fault]:
    """bool[b, h, Q, columns], the listed blocks, an entry out of range ignored; and the faults."""
    n = indices.shape[-1]
    places = jax.lax.broadcasted_iota(jnp.int32, indices.shape, 3)
    used = places < counts[..., None]
    inside = (indices >= 0) & (indices < columns)
    b, h, q = np.ix_(*(np.arange(size, dtype=np.int32) for size in counts.shape))
    where = jnp.where(used & inside, indices, columns)
    times = jnp.zeros((*counts.shape, columns), jnp.int32)
    times = times.at[b[..., None], h[..., None], q[..., None], where].add(1, mode="drop")
    overfull = ((counts < 0) | (counts > n)).any()
    return times > 0, _Fault(overfull, (used & ~inside).any(), (times > 1).any())


def _listed(names: tuple[str, str], pair: Pair, columns: int) -> tuple[jax.Array, jax.Array]:
    """bool[b, h, Q, columns], the listed blocks; and whether the lists have a fault, bool[].

    Raises:
        ValueError: where a fault is known, saying what is wrong.
    """
    found, fault = _entries(*pair, columns)
    if all(map(is_known, fault)):
        if fault.overfull:
            raise ValueError(f"{names[0]} has a count below 0, or above what {names[1]} holds")
        if fault.wild:
            raise ValueError(f"{names[1]} has an entry outside of the {columns} blocks of keys")
        if fault.twice:
            raise ValueError(f"{names[1]} lists a block twice in a row")
    return found, fault.overfull | fault.wild | fault.twice
