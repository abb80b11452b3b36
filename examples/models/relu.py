"""A decoder with ReLU in its feed-forward networks (OPT's shape): a prompt, then one token after
the other with a cache of keys and values. In two forms of one set of weights: "dense", by XLA, and
"sparse", where `js.sparse_ffn` does not read the rows of the second weight whose activation is
zero. Attention, logits and the cache are the same.

The weights have the layout of relu_activations.py, whose trained networks run here as well. A first
weight may have BIASES rows more than there are features, of features that are 1: their sum is the
bias. They are 8 because the kernels for GPUs take widths that are multiples of 8.
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import jaxsparse as js

FORMS = ("dense", "sparse")
HEAD, BIASES = 64, 8
Params = dict[str, Any]


class Config(NamedTuple):
    """Sizes; `longest`: tokens of prompt and answer together."""

    layers: int
    d: int
    words: int
    longest: int


SIZES = {
    "125M": Config(12, 768, 50272, 2048),
    "1.3B": Config(24, 2048, 50272, 2048),
    "6.7B": Config(32, 4096, 50272, 2048),
}


class Cache(NamedTuple):
    """Keys and values [B,room,N,H] of each layer, of which the first `length` int32[] count."""

    k: list[jax.Array]
    v: list[jax.Array]
    length: jax.Array


def initial(config: Config, zeros: float, dtype: str, seed: int = 0) -> Params:
    """Random weights, drawn on the device, with about this share of zero activations, set by the
    bias: an input has mean 0 and variance 1, and so do the first products.
    """
    keys = iter(jax.random.split(jax.random.key(seed), 4 * config.layers + 2))
    d, threshold = config.d, NormalDist().inv_cdf(zeros)

    def draw(rows: int, columns: int, scale: float) -> jax.Array:
        return (scale * jax.random.normal(next(keys), (rows, columns))).astype(dtype)

    def block() -> Params:
        up = draw(d, 4 * d, d**-0.5)
        bias = jnp.full((BIASES, 4 * d), -threshold / BIASES, up.dtype)
        return {
            "qkv": draw(d, 3 * d, d**-0.5),
            "out": draw(d, d, d**-0.5),
            "up": jnp.concatenate([up, bias]),
            "down": draw(4 * d, d, d**-0.5),
        }

    words, places = draw(config.words, d, d**-0.5), draw(config.longest, d, d**-0.5)
    return {"words": words, "places": places, "blocks": [block() for _ in range(config.layers)]}


def norm(x: jax.Array) -> jax.Array:
    """Each token with mean 0 and variance 1."""
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def feed(form: str, p: Params, x: jax.Array) -> jax.Array:
    """The feed-forward network, [..., d] -> [..., d]."""
    x = with_ones(p, x)
    if form == "sparse":
        return js.sparse_ffn(x, p["up"], p["down"])
    return jax.nn.relu(x @ p["up"]) @ p["down"]


def with_ones(p: Params, x: jax.Array) -> jax.Array:
    """The inputs, with features that are 1 where the first weight has rows for the bias."""
    more = p["up"].shape[0] - x.shape[-1]
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], more), x.dtype)], -1) if more else x


def logits_of(params: Params, x: jax.Array) -> jax.Array:
    """float32[B,words] of the tokens [B,d]."""
    return jnp.matmul(norm(x), params["words"].T, preferred_element_type=jnp.float32)


def empty_cache(params: Params, batch: int, room: int) -> Cache:
    """For so many sequences and tokens."""
    d = params["words"].shape[1]
    zeros = jnp.zeros((batch, room, d // HEAD, HEAD), params["words"].dtype)
    return Cache(*([zeros] * len(params["blocks"]),) * 2, jnp.zeros((), jnp.int32))


def through(form: str, params: Params, ids: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
    """Tokens int32[B,n] that follow those in the cache -> (features [B,d] of the last, cache)."""
    batch, n = ids.shape
    at = cache.length + jnp.arange(n, dtype=jnp.int32)
    x = params["words"][ids] + params["places"][at]
    seen = jnp.arange(cache.k[0].shape[1], dtype=jnp.int32) <= at[:, None]
    keys, values, start = [], [], (0, cache.length, 0, 0)
    for p, old_k, old_v in zip(params["blocks"], cache.k, cache.v, strict=True):
        qkv = jnp.split(norm(x) @ p["qkv"], 3, -1)
        q, k, v = (part.reshape(batch, n, -1, HEAD) for part in qkv)
        keys.append(lax.dynamic_update_slice(old_k, k, start))
        values.append(lax.dynamic_update_slice(old_v, v, start))
        y = jax.nn.dot_product_attention(q, keys[-1], values[-1], mask=seen[None, None])
        x = x + y.reshape(x.shape) @ p["out"]
        x = x + feed(form, p, norm(x))
    return x[:, -1], Cache(keys, values, cache.length + n)


def prompt(form: str, room: int, params: Params, ids: jax.Array) -> tuple[jax.Array, Cache]:
    """A prompt int32[B,n] -> (logits of the next token, a cache of `room` tokens)."""
    x, cache = through(form, params, ids, empty_cache(params, len(ids), room))
    return logits_of(params, x), cache


def decode(
    form: str, count: int, params: Params, logits: jax.Array, cache: Cache
) -> tuple[jax.Array, jax.Array]:
    """`count` tokens, each the most likely: (int32[B,count], the logits after the last)."""

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        logits, cache = state
        token = jnp.argmax(logits, -1).astype(jnp.int32)
        x, cache = through(form, params, token[:, None], cache)
        return (logits_of(params, x), cache), token

    (logits, _), tokens = lax.scan(step, (logits, cache), None, count)
    return tokens.T, logits


def zeros_of(params: Params, ids: jax.Array) -> jax.Array:
    """By layer the share of activations that are zero, f32[layers], of all tokens int32[B,n]."""
    batch, n = ids.shape
    x = params["words"][ids] + params["places"][:n]
    shares = []
    for p in params["blocks"]:
        qkv = jnp.split(norm(x) @ p["qkv"], 3, -1)
        heads = (part.reshape(batch, n, -1, HEAD) for part in qkv)
        y = jax.nn.dot_product_attention(*heads, is_causal=True)
        x = x + y.reshape(x.shape) @ p["out"]
        h = jax.nn.relu(with_ones(p, norm(x)) @ p["up"])
        shares.append((h == 0).mean(dtype=jnp.float32))
        x = x + h @ p["down"]
    return jnp.stack(shares)
