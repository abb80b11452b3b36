"""Two transformers for long inputs whose attention is sparse, each in four forms of one set of
weights.

"longformer": an encoder. A token attends to a window around it and to the global tokens; a global
token attends to all, with projections of its own (Longformer, 3). Where the global tokens are is an
input. "museformer": a causal decoder of music in bars. A token attends to its own bar, to related
bars before it, and to the summaries of all earlier bars; a summary attends to its bar (Museformer,
3.2). Where bars begin is an input.

"full" has no mask: dense attention as fast as the device computes it, with another result. "dense"
is dense attention with the mask. "banded" gathers in jax.numpy what each chunk of queries attends
to. "sparse" is `js.sparse_attention`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js
from models.long import chunks
from models.long.config import HEAD, VOCABULARY, Config
from models.long.masks import bar_mask, dense_mask, window_mask

FORMS = ("full", "dense", "banded", "sparse")
Params = dict[str, Any]
#: q, k, v, each [B,T,N,H] -> [B,T,N,H]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def initial(config: Config, tokens: int, seed: int = 0) -> Params:
    """Random parameters, float32; those of the layers are stacked."""
    rng, d = np.random.default_rng(seed), config.d

    def draw(n_in: int, n_out: int) -> Params:
        w = rng.standard_normal((config.layers, n_in, n_out), np.float32) * n_in**-0.5
        return {"w": jnp.asarray(w, jnp.float32), "b": jnp.zeros((config.layers, n_out))}

    def norm() -> Params:
        return {"scale": jnp.ones((config.layers, d)), "bias": jnp.zeros((config.layers, d))}

    layers = {"qkv": draw(d, 3 * d), "out": draw(d, d), "up": draw(d, 4 * d)}
    layers |= {"down": draw(4 * d, d), "norm1": norm(), "norm2": norm()}
    if config.kind == "longformer":
        layers["global"] = draw(d, 3 * d)
    rows = tokens + config.summaries(tokens)
    tables = [rng.standard_normal((n, d), np.float32) for n in (VOCABULARY, rows)]
    words, places = map(jnp.asarray, tables)
    return {"words": words, "places": places, "layers": layers}


def forward(
    config: Config, form: str, params: Params, ids: jax.Array, given: jax.Array
) -> jax.Array:
    """The network in one of FORMS: tokens int32[B,T], and the positions or bars that `inputs` draws
    -> [B,T,d].
    """
    tokens = ids.shape[1]
    summaries = config.summaries(tokens)
    x = jnp.pad(params["words"][ids], ((0, 0), (summaries, 0), (0, 0))) + params["places"]
    attend = attention(config, form, tokens, given)
    with_globals = config.kind == "longformer" and form != "full"

    def layer(x: jax.Array, p: Params) -> tuple[jax.Array, None]:
        y = attend(*heads_of(dense(p["qkv"], x), 3)).reshape(x.shape)
        if with_globals:
            y = with_global_rows(p["global"], x, y, given)
        x = normalised(p["norm1"], x + dense(p["out"], y))
        y = dense(p["down"], jax.nn.gelu(dense(p["up"], x)))
        return normalised(p["norm2"], x + y), None

    return lax.scan(layer, x, params["layers"])[0][:, summaries:]


def attention(config: Config, form: str, tokens: int, given: jax.Array) -> Attend:
    """The attention of every layer in one of FORMS; its mask is built here, once."""
    causal = config.kind == "museformer"
    if form == "full":
        return functools.partial(fused, is_causal=causal)
    if form == "dense":
        return functools.partial(fused, mask=dense_mask(config, tokens, given))
    if form == "banded":
        return functools.partial(chunks.bars if causal else chunks.window, config, given)
    mask = block_mask(config, tokens, given)
    if causal:
        return lambda q, k, v: js.sparse_attention(q, k, v, mask)
    return lambda q, k, v: js.sparse_attention(q, *(in_front(given, x) for x in (k, v)), mask)


def block_mask(config: Config, tokens: int, given: jax.Array) -> js.BlockMask:
    """The mask of the form "sparse"."""
    make = bar_mask if config.kind == "museformer" else window_mask
    return make(config, tokens, given)


def fused(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> jax.Array:
    """Dense attention; cuDNN's on a GPU in half precision."""
    half = jax.default_backend() == "gpu" and q.dtype != jnp.float32
    name = "cudnn" if half else "xla"
    return jax.nn.dot_product_attention(q, k, v, implementation=name, **options)


def in_front(positions: jax.Array, x: jax.Array) -> jax.Array:
    """[B,T,N,H] after the rows of the global tokens: [B,GLOBALS+T,N,H]."""
    rows = x[np.arange(len(x))[:, None], jnp.maximum(positions, 0)]
    return jnp.concatenate([rows, x], 1)


def with_global_rows(p: Params, x: jax.Array, y: jax.Array, positions: jax.Array) -> jax.Array:
    """y [B,T,d] with the rows of the global tokens, which attend to all of x [B,T,d]."""
    batch, (tokens, d) = np.arange(len(x))[:, None], x.shape[1:]
    (q,) = heads_of(x[batch, jnp.maximum(positions, 0)] @ p["w"][:, :d] + p["b"][:d], 1)
    k, v = heads_of(x @ p["w"][:, d:] + p["b"][d:], 2)
    rows = jax.nn.dot_product_attention(q, k, v).reshape(*positions.shape, d)
    at = jnp.where(positions < 0, tokens, positions)
    return y.at[batch, at].set(rows, mode="drop")


def dense(p: Params, x: jax.Array) -> jax.Array:
    """A linear layer."""
    return x @ p["w"] + p["b"]


def heads_of(x: jax.Array, parts: int) -> list[jax.Array]:
    """[B,T,parts*d] -> so many [B,T,N,H]."""
    return [part.reshape(*x.shape[:2], -1, HEAD) for part in jnp.split(x, parts, -1)]


def normalised(p: Params, x: jax.Array) -> jax.Array:
    """Layer normalisation of the last axis."""
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
    return (wide * p["scale"] + p["bias"]).astype(x.dtype)
