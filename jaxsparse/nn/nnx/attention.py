"""`js.nn.nnx.SparseAttention`: flax.nnx's MultiHeadAttention over blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from flax import nnx
from flax.nnx.nn.attention import default_kernel_init, dot_product_attention
from flax.nnx.nn.dtypes import promote_dtype
from flax.nnx.nn.linear import default_bias_init
from flax.typing import DotGeneralT, PrecisionLike, PromoteDtypeFn
from jax import Array
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.index import BlockMask
from jaxsparse.nn.attention import (
    attend,
    check_dropout,
    check_inputs,
    check_mask,
    step_mask,
    store,
)
from jaxsparse.nn.checks import check_rngs
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import Initializer

Metadata = Mapping[str, object]
Sharding = NamedSharding | PartitionSpec


class SparseAttention(Layer, nnx.MultiHeadAttention):
    """flax's multi-head attention, which computes only the blocks of a mask.

    It has every argument of `flax.nnx.MultiHeadAttention`, with the same name, default and meaning,
    grouped queries (`num_kv_heads`) and the cache of `init_cache` included, and the same parameters
    (query, key, value, out): the state of either loads into the other. `implementation` is new.

    Args:
        num_heads: number of heads of the queries.
        in_features: size of the input's last axis.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: `nnx.Rngs` for the initial parameters.

    Raises:
        TypeError, ValueError: for an unknown implementation, for dropout, and as flax does.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        out_features: int | None = None,
        num_kv_heads: int | None = None,
        in_kv_features: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        broadcast_dropout: bool = True,
        dropout_rate: float = 0.0,
        deterministic: bool | None = None,
        precision: PrecisionLike = None,
        kernel_init: Initializer = default_kernel_init,
        out_kernel_init: Initializer | None = None,
        bias_init: Initializer = default_bias_init,
        out_bias_init: Initializer | None = None,
        use_bias: bool = True,
        attention_fn: Callable[..., Array] = dot_product_attention,
        decode: bool | None = None,
        normalize_qk: bool = False,
        qkv_promote_dtype: PromoteDtypeFn = promote_dtype,
        out_promote_dtype: PromoteDtypeFn = promote_dtype,
        ln_promote_dtype: PromoteDtypeFn = promote_dtype,
        qkv_dot_general: DotGeneralT | None = None,
        out_dot_general: DotGeneralT | None = None,
        qkv_dot_general_cls: Callable[[], DotGeneralT] | None = None,
        out_dot_general_cls: Callable[[], DotGeneralT] | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        keep_rngs: bool = True,
        kernel_metadata: Metadata = MappingProxyType({}),
        out_kernel_metadata: Metadata = MappingProxyType({}),
        bias_metadata: Metadata = MappingProxyType({}),
        out_bias_metadata: Metadata = MappingProxyType({}),
        query_ln_scale_metadata: Metadata = MappingProxyType({}),
        key_ln_scale_metadata: Metadata = MappingProxyType({}),
    ) -> None:
        check_dropout(dropout_rate)
        check_rngs(rngs)
        super().__init__(
            num_heads,
            in_features,
            qkv_features,
            out_features,
            num_kv_heads,
            in_kv_features,
            dtype=dtype,
            param_dtype=param_dtype,
            broadcast_dropout=broadcast_dropout,
            deterministic=deterministic,
            precision=precision,
            kernel_init=kernel_init,
            out_kernel_init=out_kernel_init,
            bias_init=bias_init,
            out_bias_init=out_bias_init,
            use_bias=use_bias,
            attention_fn=attention_fn,
            decode=decode,
            normalize_qk=normalize_qk,
            qkv_promote_dtype=qkv_promote_dtype,
            out_promote_dtype=out_promote_dtype,
            ln_promote_dtype=ln_promote_dtype,
            qkv_dot_general=qkv_dot_general,
            out_dot_general=out_dot_general,
            qkv_dot_general_cls=qkv_dot_general_cls,
            out_dot_general_cls=out_dot_general_cls,
            rngs=rngs,
            keep_rngs=keep_rngs,
            kernel_metadata=kernel_metadata,
            out_kernel_metadata=out_kernel_metadata,
            bias_metadata=bias_metadata,
            out_bias_metadata=out_bias_metadata,
            query_ln_scale_metadata=query_ln_scale_metadata,
            key_ln_scale_metadata=key_ln_scale_metadata,
        )
        self.implementation: Implementation = named(implementation)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs_q: Float[ArrayLike, "*batch T d"],
        inputs_k: Float[ArrayLike, "*batch S e"] | None = None,
        inputs_v: Float[ArrayLike, "*batch S e"] | None = None,
        *,
        mask: BlockMask | None = None,
        deterministic: bool | None = None,
        decode: bool | None = None,
        is_causal: bool = False,
        out_sharding: Sharding | None = None,
        qkv_sharding: Sharding | None = None,
    ) -> Float[Array, "*batch T features"]:
        """The attended values of each query.

        Args:
            inputs_q: float32, bfloat16 or float16 [*batch, T, d].
            inputs_k: [*batch, S, e]; None: `inputs_q`.
            inputs_v: [*batch, S, e]; None: `inputs_k`.
            mask: a `js.BlockMask` of T queries and S keys; its batch and heads are 1 or the
                layer's. When decoding, a mask of n queries and n keys, n being the length of the
                cache: each step uses its own row. Or a mask of 1 query and n keys for this step.
                None: flax's own attention to every key.
            deterministic: as in flax; there is no dropout.
            decode: as in flax: one query a step, with the cache of `init_cache`.
            is_causal: whether a query also attends only to keys up to its own position.
            out_sharding: as in flax.
            qkv_sharding: as in flax.

        Returns:
            [*batch, T, out_features].

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or mask, naming the argument.
        """
        query, key, value = check_inputs(inputs_q, inputs_k, inputs_v)
        if mask is None:
            return super().__call__(
                query,
                key,
                value,
                deterministic=deterministic,
                decode=bool(decode if decode is not None else self.decode),
                is_causal=is_causal,
                out_sharding=out_sharding,
                qkv_sharding=qkv_sharding,
            )
        check_mask("mask", mask)
        if query.shape[-1] != self.in_features:
            raise ValueError(
                f"inputs_q has shape {query.shape}; in_features={self.in_features} needs it last"
            )
        query = self.query(query, out_sharding=qkv_sharding)
        key = self.key(key, out_sharding=qkv_sharding)
        value = self.value(value, out_sharding=qkv_sharding)
        if self.query_ln is not None and self.key_ln is not None:
            query, key = self.query_ln(query), self.key_ln(key)
        if self.decode if decode is None else decode:
            key, value, mask = self._cached(key, value, mask)
            is_causal = False  # the step's mask is
        attended = attend(
            query,
            key,
            value,
            mask,
            is_causal,
            None,
            self.dtype,
            self.precision,
            self.implementation,
        )
        return self.out(attended, out_sharding=out_sharding)

    def _cached(self, key: Array, value: Array, mask: BlockMask) -> tuple[Array, Array, BlockMask]:
        """The cache with this step's key and value, and the step's mask."""
        keys, values, index = self.cached_key, self.cached_value, self.cache_index
        if keys is None or values is None or index is None:
            raise ValueError("decode: there is no cache yet; call init_cache first")
        at = index[...]
        keys[...], values[...] = store(keys[...], values[...], key, value, at)
        index[...] = at + 1
        return keys[...], values[...], step_mask(mask, at, keys.shape[-3])
