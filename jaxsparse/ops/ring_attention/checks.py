"""What `ring_attention` refuses beside what `sparse_attention` does, at trace time."""

from __future__ import annotations

import functools

import jax

from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.index.blocks import BlockMask
from jaxsparse.ops.sparse_attention.checks import LAYOUT, raise_if
from jaxsparse.select.config import settings


def check_lengths(mask: BlockMask, devices: int, q: jax.Array, k: jax.Array) -> None:
    """Raise unless the mask has all keys, and this device's queries or all, and shards end between
    blocks.
    """
    (block_q, block_kv), keys, queries = mask.block_size, k.shape[1], q.shape[1]
    if mask.kv_len != devices * keys:
        raise ValueError(
            f"k has {keys} tokens (shape {k.shape}, {LAYOUT}) on each of {devices} devices, "
            f"{devices * keys} together; block_mask is of kv_len={mask.kv_len}: make it for the "
            f"keys of all devices, kv_len={devices * keys}"
        )
    if mask.q_len not in (queries, devices * queries):
        raise ValueError(
            f"q has {queries} tokens (shape {q.shape}, {LAYOUT}) on each of {devices} devices; "
            f"block_mask is of q_len={mask.q_len}: make it for this device's {queries} queries, or "
            f"for all {devices * queries}"
        )
    sides = [("k", keys, "kv", block_kv)]
    if mask.q_len != queries:
        sides.append(("q", queries, "q", block_q))
    for name, length, side, block in sides:
        if devices > 1 and length % block:
            raise ValueError(
                f"{name} has {length} tokens on each of {devices} devices, which is not a multiple "
                f"of block_{side}={block} of block_mask: pad the sequence to a multiple of "
                f"{devices} * {block} = {devices * block}, or give the mask smaller blocks"
            )


def check_complete(overflow: jax.Array) -> None:
    """Under `js.checked()`: raise for a mask of which some was left out, on any device."""
    if settings().checked:
        raise_on_host(functools.partial(raise_if, "ring_attention"), overflow)
