"""What the attention layers share, and the function for flax's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.index import BlockMask, block_masks
from jaxsparse.ops import sparse_attention

#: As `flax.linen.dot_product_attention`: query, key, value and options to the attended values.
AttentionFn = Callable[..., jax.Array]


def sparse_attention_fn(
    block_mask: BlockMask, *, implementation: Implementation = None
) -> AttentionFn:
    """An `attention_fn` for flax's `MultiHeadAttention` and `MultiHeadDotProductAttention` that
    computes only the blocks of a mask.

        nnx.MultiHeadAttention(8, 512, attention_fn=js.nn.sparse_attention_fn(mask), rngs=rngs)

    The mask is a constant of the layer. For a mask that changes from call to call, and for decoding
    with a cache, use `js.nn.nnx.SparseAttention` or `js.nn.linen.SparseAttention`.

    Args:
        block_mask: a `js.BlockMask` of as many queries and keys as the layer is called with.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A function with the arguments of flax's `dot_product_attention`. If the layer is called with
        a dense `mask` or with `is_causal`, a query attends only where `block_mask` and these allow
        it; a dense mask is converted to blocks in each call.

    Raises:
        TypeError: when `block_mask` is not a BlockMask. The returned function raises ValueError
            for dropout and for `sow_weights`, and what `js.sparse_attention` raises.
    """
    check_mask("block_mask", block_mask)
    wishes(implementation)

    def attention_fn(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: jax.Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: DTypeLike | None = None,
        precision: jax.lax.PrecisionLike = None,
        module: object = None,
        promote_dtype: object = None,
        is_causal: bool = False,
    ) -> jax.Array:
        del broadcast_dropout, dropout_rng, promote_dtype
        if not deterministic:
            check_dropout(dropout_rate)
        if module is not None:
            raise ValueError("sow_weights: the weights of sparse attention are never held")
        kept = block_mask
        if mask is not None:
            whole = mask.reshape(-1, *mask.shape[-3:]) != 0  # flax's own are float32
            kept &= BlockMask.from_dense(whole, kept.block_size)
        return attend(query, key, value, kept, is_causal, bias, dtype, precision, implementation)

    return attention_fn


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: BlockMask,
    is_causal: bool,
    bias: jax.Array | None,
    dtype: DTypeLike | None,
    precision: Any,
    implementation: Implementation,
) -> jax.Array:
    """[*batch, T, N, H] attended as the mask says, and up to each query's place if `is_causal`."""
    if is_causal:
        mask &= block_masks.causal(mask.q_len, mask.kv_len, mask.block_size)
    dtype = jnp.result_type(query, key, value) if dtype is None else dtype
    q, k, v = (_batched(x, 3).astype(dtype) for x in (query, key, value))
    out = sparse_attention(
        q,
        k,
        v,
        mask,
        bias=None if bias is None else _batched(bias, 3),
        precision=precision,
        implementation=implementation,
    )
    return out if query.ndim == 4 else out.reshape(*query.shape[:-1], value.shape[-1])


def _batched(value: jax.Array, fixed: int) -> jax.Array:
    """[*batch, ...] with one batch axis in front of the last `fixed`."""
    if value.ndim == fixed + 1:
        return value
    lead = math.prod(value.shape[: value.ndim - fixed])
    return value.reshape(lead, *value.shape[value.ndim - fixed :])


def step_mask(mask: BlockMask, at: jax.Array, keys: int) -> BlockMask:
    """What the query at the place `at`, int32[], attends to in a cache of so many keys: its row of
    the mask, or the mask itself if that is of one query; and nothing that is not yet there.

    Raises:
        ValueError: when the mask is of another number of keys.
    """
    if mask.kv_len != keys or mask.q_len not in (1, keys):
        raise ValueError(
            f"mask is {mask}; a cache of {keys} keys needs kv_len={keys}, and q_len={keys} or 1"
        )
    row = mask if mask.q_len == 1 else mask.at_query(at)
    return row & block_masks.causal(1, keys, row.block_size, offset=at)


def store(
    cached_key: jax.Array, cached_value: jax.Array, key: jax.Array, value: jax.Array, at: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The caches [*batch, keys, heads, depth] with one more key and value, [*batch, 1, heads,
    depth], at place `at`.

    Raises:
        ValueError: for another shape.
    """
    expected = (*cached_key.shape[:-3], 1, *cached_key.shape[-2:])
    if key.shape != expected:
        raise ValueError(f"decode: the cache takes a key of shape {expected}; it is {key.shape}")
    place = (jnp.zeros_like(at),) * (key.ndim - 3) + (at, *(jnp.zeros_like(at),) * 2)
    return (
        jax.lax.dynamic_update_slice(cached_key, key.astype(cached_key.dtype), place),
        jax.lax.dynamic_update_slice(cached_value, value.astype(cached_value.dtype), place),
    )


def check_mask(name: str, mask: object) -> None:
    """`mask` is a BlockMask.

    Raises:
        TypeError: naming the argument, and how to make one.
    """
    if not isinstance(mask, BlockMask):
        raise TypeError(
            f"{name} must be a BlockMask, not {type(mask).__name__}: js.create_block_mask, "
            "js.block_masks and js.BlockMask.from_dense make one"
        )


def check_dropout(rate: float) -> None:
    """No weights are dropped.

    Raises:
        ValueError: for a rate above 0.
    """
    if rate > 0:
        raise ValueError(
            f"dropout_rate={rate}: weights of sparse attention are not dropped; drop the layer's "
            "result instead"
        )


def check_inputs(
    inputs_q: Any, inputs_k: Any, inputs_v: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The three inputs; keys are those of the queries where not given, values those of the keys.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if inputs_k is None and inputs_v is not None:
        raise ValueError("inputs_v needs inputs_k: inputs_k alone serves both")
    inputs_k = inputs_q if inputs_k is None else inputs_k
    inputs_v = inputs_k if inputs_v is None else inputs_v
    found = {"inputs_q": inputs_q, "inputs_k": inputs_k, "inputs_v": inputs_v}
    for name, value in found.items():
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise TypeError(f"{name} must be an array, not {type(value).__name__}")
        if len(value.shape) < 2:
            raise ValueError(f"{name} has shape {tuple(value.shape)}; it needs (*batch, length, d)")
    return jnp.asarray(inputs_q), jnp.asarray(inputs_k), jnp.asarray(inputs_v)
