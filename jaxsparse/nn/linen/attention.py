"""`js.nn.linen.SparseAttention`: flax.linen's MultiHeadDotProductAttention over blocks."""

from __future__ import annotations

import functools

import jax.numpy as jnp
from flax import linen
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.index import BlockMask
from jaxsparse.nn.attention import (
    attend,
    check_dropout,
    check_inputs,
    check_mask,
    step_mask,
    store,
)


class SparseAttention(linen.MultiHeadDotProductAttention):
    """flax's multi-head attention, which computes only the blocks of a mask.

    It has every field of `flax.linen.MultiHeadDotProductAttention`, with the same name, default and
    meaning, and the same parameters (query, key, value, out): a checkpoint of either loads into the
    other. One field is new:

    Attributes:
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made with an unknown implementation, with dropout,
            or with an einsum class of the user.
    """

    implementation: Implementation = None

    def __post_init__(self) -> None:
        wishes(self.implementation)
        check_dropout(self.dropout_rate)
        for name in ("qk_attn_weights_einsum_cls", "attn_weights_value_einsum_cls"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: SparseAttention brings its own products")
        super().__post_init__()

    @linen.compact
    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs_q: Float[ArrayLike, "*batch T d"],
        inputs_k: Float[ArrayLike, "*batch S d"] | None = None,
        inputs_v: Float[ArrayLike, "*batch S d"] | None = None,
        *,
        mask: BlockMask | None = None,
        deterministic: bool | None = None,
    ) -> Float[Array, "*batch T features"]:
        """The attended values of each query.

        Args:
            inputs_q: float32, bfloat16 or float16 [*batch, T, d].
            inputs_k: [*batch, S, d]; None: `inputs_q`.
            inputs_v: [*batch, S, d]; None: `inputs_k`.
            mask: a `js.BlockMask` of T queries and S keys; its batch and heads are 1 or the
                layer's. With `decode`, a mask of n queries and n keys, n being the length of the
                cache: each step uses its own row. Or a mask of 1 query and n keys for this step.
                None: flax's own attention to every key.
            deterministic: as in flax; there is no dropout.

        Returns:
            [*batch, T, out_features].

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or mask, naming the argument.
        """
        inputs_q, inputs_k, inputs_v = check_inputs(inputs_q, inputs_k, inputs_v)
        if mask is None:
            return super().__call__(inputs_q, inputs_k, inputs_v, deterministic=deterministic)
        check_mask("mask", mask)
        width = self.qkv_features or inputs_q.shape[-1]
        if width % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide qkv_features={width}")
        general = functools.partial(
            linen.DenseGeneral,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            use_bias=self.use_bias,
            precision=self.precision,
        )
        project = functools.partial(
            general,
            features=(self.num_heads, width // self.num_heads),
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            dot_general=self.qkv_dot_general,
            dot_general_cls=self.qkv_dot_general_cls,
        )
        query, key = project(name="query")(inputs_q), project(name="key")(inputs_k)
        value = project(name="value")(inputs_v)
        if self.normalize_qk:
            norm = functools.partial(
                linen.LayerNorm, use_bias=False, dtype=self.dtype, param_dtype=self.param_dtype
            )
            query, key = norm(name="query_ln")(query), norm(name="key_ln")(key)
        if self.decode:
            key, value, mask = self._cached(key, value, mask)
        attended = attend(
            query, key, value, mask, False, None, self.dtype, self.precision, self.implementation
        )
        return general(
            features=self.out_features or inputs_q.shape[-1],
            axis=(-2, -1),
            kernel_init=self.out_kernel_init or self.kernel_init,
            bias_init=self.out_bias_init or self.bias_init,
            dot_general=self.out_dot_general,
            dot_general_cls=self.out_dot_general_cls,
            name="out",
        )(attended)

    def _cached(self, key: Array, value: Array, mask: BlockMask) -> tuple[Array, Array, BlockMask]:
        """The cache with this step's key and value, and the step's mask; when the layer is
        initialised, the cache is made, and all is as given.
        """
        there = self.has_variable("cache", "cached_key")
        keys = self.variable("cache", "cached_key", jnp.zeros, key.shape, key.dtype)
        values = self.variable("cache", "cached_value", jnp.zeros, value.shape, value.dtype)
        index = self.variable("cache", "cache_index", lambda: jnp.array(0, dtype=jnp.int32))
        if not there:
            return key, value, mask
        at = index.value
        keys.value, values.value = store(keys.value, values.value, key, value, at)
        index.value = at + 1
        return keys.value, values.value, step_mask(mask, at, keys.value.shape[-3])
