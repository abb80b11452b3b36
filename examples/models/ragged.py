"""An encoder of BERT's shape on batches whose rows have different lengths, in four forms with the
same parameters.

"padded" computes every token. "masked" computes the linear layers at the tokens that count: one
index of them serves all layers. "packed" puts the tokens that count side by side once, does
everything but attention on them, and returns to the rows for attention; the packed length is one of
a few static ones, chosen on the device by `lax.switch`, so one compile serves every batch. "sparse"
is packed as well, by `js.pack_tokens`, and stays so: `js.sparse_attention` attends within each text
among the packed rows.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

import jaxsparse as js

HEAD = 64
FORMS = ("padded", "masked", "packed", "sparse")
BLOCK = 128  # of the mask of attention
PARTS = 12  # packed lengths are multiples of a twelfth of the padded one


class Packing(NamedTuple):
    """Where packed tokens come from, and where they are.

    `source` int32[capacity]: the token of [batch * longest] in each packed row, past the end where
    there is none. `place` int32[batch * longest]: the packed row of each token, likewise.
    """

    source: jax.Array
    place: jax.Array

    @classmethod
    def of(cls, index: js.TileIndex, capacity: int) -> "Packing":
        """The first `capacity` tokens that an index of single tokens lists."""
        tokens = index.capacity
        source = jnp.where(index.ids[:capacity] < 0, tokens, index.ids[:capacity])
        place = jnp.full(tokens, capacity, jnp.int32)
        rows = jnp.arange(capacity, dtype=jnp.int32)
        return cls(source, place.at[source].set(rows, mode="drop"))

    def pack(self, x: jax.Array) -> jax.Array:
        """[batch, longest, ...] -> [capacity, ...]; rows past the tokens mean nothing."""
        return x.reshape(-1, *x.shape[2:]).at[self.source].get(mode="clip")

    def unpack(self, x: jax.Array, batch: int) -> jax.Array:
        """[capacity, ...] -> [batch, longest, ...]; other tokens mean nothing."""
        return x.at[self.place].get(mode="clip").reshape(batch, -1, *x.shape[1:])


class Block(linen.Module):
    """Attention and a two-layer network, each added to its input and normalised.

    Attributes:
        dtype: of the computation; parameters are float32.
    """

    dtype: Any = jnp.float32

    @linen.compact
    def __call__(
        self,
        x: jax.Array,
        lengths: jax.Array,
        index: js.TileIndex | None = None,
        packing: Packing | None = None,
        mask: js.BlockMask | None = None,
    ) -> jax.Array:
        """x [batch, longest, d], or packed [capacity, d]; lengths int32[batch] -> like x.

        With a packing attention returns to the rows, with a mask it runs on the packed ones. With
        an index (of the tokens that count) what comes out at the other tokens means nothing.
        """
        d, batch = x.shape[-1], lengths.shape[0]
        init = linen.initializers.normal(d**-0.5)
        dense = functools.partial(js.nn.linen.MaskedDense, dtype=self.dtype, kernel_init=init)
        qkv = jnp.split(dense(3 * d, name="qkv")(x, index), 3, axis=-1)
        if packing is not None:
            qkv = [packing.unpack(each, batch) for each in qkv]
        if mask is not None:
            y = js.sparse_attention(*(each.reshape(1, -1, d // HEAD, HEAD) for each in qkv), mask)
            y = y.reshape(x.shape)
        else:
            y = attention(*(each.reshape(batch, -1, d // HEAD, HEAD) for each in qkv), lengths)
            y = y.reshape(batch, -1, d)
        y = y if packing is None else packing.pack(y)
        y = dense(d, name="out")(y, index)
        x = linen.LayerNorm(dtype=self.dtype, name="norm_attention")(x + y)
        y = dense(4 * d, activation="gelu", name="up")(x, index)
        y = dense(d, name="down")(y, index)
        return linen.LayerNorm(dtype=self.dtype, name="norm_mlp")(x + y)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, lengths: jax.Array) -> jax.Array:
    """Dense attention in each row of the batch, up to its length; BTNH. cuDNN's on a GPU in half
    precision.
    """
    fused = jax.default_backend() == "gpu" and q.dtype != jnp.float32
    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn" if fused else "xla",
    )


class Encoder(linen.Module):
    """Embeddings and `layers` blocks of width `d`; `encode` runs it in each form.

    Attributes:
        layers: how many blocks.
        d: width, a multiple of 64.
        vocabulary: token ids are below it.
        dtype: of the computation.
    """

    layers: int
    d: int
    vocabulary: int
    dtype: Any = jnp.float32

    @linen.compact
    def __call__(
        self,
        ids: jax.Array,
        lengths: jax.Array,
        index: js.TileIndex | None = None,
        capacity: int | None = None,
    ) -> jax.Array:
        """ids int32[batch, longest], lengths int32[batch] -> [batch, longest, d], zero past each
        length. With an index masked, with a capacity too packed, with a capacity alone sparse.
        """
        batch, longest = ids.shape
        places = jnp.broadcast_to(jnp.arange(longest, dtype=jnp.int32), ids.shape)
        packing = tokens = mask = None
        if index is None and capacity is not None:
            ids, tokens = js.pack_tokens(ids, js.lengths_mask(lengths, longest), capacity=capacity)
            places, mask = tokens.positions(), tokens.block_mask(BLOCK)
        if index is not None and capacity is not None:
            packing, index = Packing.of(index, capacity), None
            ids, places = packing.pack(ids), packing.pack(places)
        x = linen.Embed(self.vocabulary, self.d, dtype=self.dtype, name="tokens")(ids)
        x = x + linen.Embed(512, self.d, dtype=self.dtype, name="places")(places)
        x = linen.LayerNorm(dtype=self.dtype, name="norm")(x)
        for i in range(self.layers):
            x = Block(self.dtype, name=f"block{i}")(x, lengths, index, packing, mask)
        if tokens is not None:
            return js.unpack_tokens(x, tokens)
        if packing is not None:
            x = packing.unpack(x, batch)
        kept = js.lengths_mask(lengths, longest)
        return jnp.where(kept[..., None], x, jnp.zeros((), x.dtype))


def encode(
    encoder: Encoder, form: str, params: Any, ids: jax.Array, lengths: jax.Array, parts: int = PARTS
) -> jax.Array:
    """The encoder in one of FORMS. "packed" and "sparse" have `parts` branches, of as many packed
    lengths.
    """
    if form == "padded":
        return encoder.apply(params, ids, lengths)
    index = js.token_index(js.lengths_mask(lengths, ids.shape[1]))
    if form == "masked":
        return encoder.apply(params, ids, lengths, index)
    step = -(-ids.size // parts)
    branches = [
        functools.partial(encoder.apply, capacity=min(step * (i + 1), ids.size))
        for i in range(parts)
    ]
    chosen = (jnp.maximum(index.count, 1) - 1) // step
    given = (params, ids, lengths) if form == "sparse" else (params, ids, lengths, index)
    return jax.lax.switch(chosen, branches, *given)
