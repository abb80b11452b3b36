"""A vision transformer whose tokens halt one by one (A-ViT), in three forms of one set of weights.

A head in each layer scores every token. A token halts when its scores add up to 1: later layers
neither change it nor attend to it. The class token never halts.

"dense" has no halting. "masked" computes every token and multiplies by the mask. "packed" moves the
tokens that are left side by side after each layer: dense layers and attention then compute these
only. How many are left is a number on the device, and every shape is static.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js

FORMS = ("dense", "masked", "packed")
THRESHOLD = 0.99
CLASSES = 10
Params = dict[str, Any]


class Config(NamedTuple):
    """Sizes. The stem's convolutions are (window, stride, channels), with ReLU between."""

    side: int
    stem: tuple[tuple[int, int, int], ...]
    heads: int
    layers: int

    @property
    def d(self) -> int:
        """The width of a token."""
        return self.stem[-1][2]

    @property
    def tokens(self) -> int:
        """Of an image, the class token included."""
        return (self.side // int(np.prod([stride for _, stride, _ in self.stem]))) ** 2 + 1


CONFIGS = {
    "tiny": Config(64, ((3, 2, 16), (3, 2, 32), (3, 2, 64)), 2, 6),
    "S": Config(224, ((16, 16, 384),), 6, 12),
    "B": Config(224, ((16, 16, 768),), 12, 12),
}


class Halted(NamedTuple):
    """Logits f32[B,10]; how many layers compute each token, int32[B,T]; in training, the share of
    tokens that each layer computes, f32[layers], with gradients.
    """

    logits: jax.Array
    depths: jax.Array
    shares: jax.Array


def initial(config: Config, seed: int = 0) -> Params:
    """Parameters, float32."""
    rng, d = np.random.default_rng(seed), config.d

    def normal(*shape: int, scale: float | None = None) -> jax.Array:
        scale = 1 / np.sqrt(np.prod(shape[:-1])) if scale is None else scale
        return jnp.asarray(scale * rng.standard_normal(shape), jnp.float32)

    def dense(n_in: int, n_out: int) -> Params:
        return {"w": normal(n_in, n_out), "b": jnp.zeros(n_out)}

    def norm() -> Params:
        return {"scale": jnp.ones(d), "bias": jnp.zeros(d)}

    channels = [3, *(c for _, _, c in config.stem)]
    stem = zip(config.stem, channels, strict=False)
    return {
        "stem": [{"w": normal(k, k, c_in, c), "b": jnp.zeros(c)} for (k, _, c), c_in in stem],
        "class": normal(d, scale=0.02),
        "places": normal(config.tokens, d, scale=0.02),
        "layers": [
            {
                "norm1": norm(),
                "qkv": dense(d, 3 * d),
                "out": dense(d, d),
                "norm2": norm(),
                "up": dense(d, 4 * d),
                "down": dense(4 * d, d),
                "halt": {"w": jnp.zeros(d), "b": jnp.full((), -1.5)},
            }
            for _ in range(config.layers)
        ],
        "norm": norm(),
        "logits": dense(d, CLASSES),
    }


def normalised(p: Params, x: jax.Array) -> jax.Array:
    """Layer normalisation of the last axis."""
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    return (wide * p["scale"] + p["bias"]).astype(x.dtype)


def embedded(config: Config, params: Params, images: jax.Array) -> jax.Array:
    """Images [B,side,side,3] -> tokens [B,T,d], the class token first."""
    x = images
    for i, ((_, stride, _), p) in enumerate(zip(config.stem, params["stem"], strict=True)):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=numbers)
        x = x + p["b"]
        x = x if i == len(config.stem) - 1 else jax.nn.relu(x)
    x = x.reshape(len(x), -1, config.d)
    first = jnp.broadcast_to(params["class"], (len(x), 1, config.d))
    return jnp.concatenate([first, x], 1) + params["places"]


def score(p: Params, x: jax.Array) -> jax.Array:
    """Tokens [..., d] -> f32[...], what the layer adds to a token's sum."""
    wide = x.astype(jnp.float32)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    return jax.nn.sigmoid(wide @ p["w"].astype(jnp.float32) + p["b"].astype(jnp.float32))


def in_rows(
    config: Config,
    params: Params,
    images: jax.Array,
    depths: jax.Array | None = None,
    *,
    halting: bool,
    training: bool = False,
) -> Halted:
    """The forms "dense" (halting=False) and "masked"; `depths` int32[B,T] replaces the scores.

    In training a token's gate is 0 or 1 forwards, and backwards a soft function of its sum.
    """
    x = embedded(config, params, images)
    batch, tokens, d = x.shape
    own = jnp.arange(tokens) == 0
    total, gate = jnp.zeros((batch, tokens)), jnp.ones((batch, tokens))
    count, shares = jnp.zeros((batch, tokens), jnp.int32), []
    for i, p in enumerate(params["layers"]):
        count, shares = count + (gate > 0).astype(jnp.int32), [*shares, gate.mean()]
        wide = gate[..., None].astype(x.dtype)
        qkv = normalised(p["norm1"], x) @ p["qkv"]["w"] + p["qkv"]["b"]
        q, k, v = jnp.split(qkv.reshape(batch, tokens, 3 * config.heads, -1), 3, 2)
        y = attended(q, k, v, gate, training) if halting else jax.nn.dot_product_attention(q, k, v)
        y = y.reshape(batch, tokens, d) @ p["out"]["w"] + p["out"]["b"]
        x = x + (wide * y if halting else y)
        y = jax.nn.gelu(normalised(p["norm2"], x) @ p["up"]["w"] + p["up"]["b"])
        y = y @ p["down"]["w"] + p["down"]["b"]
        x = x + (wide * y if halting else y)
        if halting:
            total = total + score(p["halt"], x)
            stays = total < THRESHOLD if depths is None else depths > i + 1
            stays = ((stays & (gate > 0)) | own).astype(jnp.float32)
            soft = jnp.where(own, 1.0, jax.nn.sigmoid(5 * (THRESHOLD - total)))
            gate = stays + (soft - lax.stop_gradient(soft) if training else 0)
    logits = normalised(params["norm"], x[:, 0]) @ params["logits"]["w"] + params["logits"]["b"]
    return Halted(logits, count, jnp.stack(shares))


def attended(
    q: jax.Array, k: jax.Array, v: jax.Array, gate: jax.Array, training: bool
) -> jax.Array:
    """Attention to the keys whose gate f32[B,S] is open, BTNH; differentiable in the gate."""
    if not training:
        return jax.nn.dot_product_attention(q, k, v, mask=(gate > 0)[:, None, None])
    scores = jnp.einsum("btnh,bsnh->bnts", q, k) / np.float32(np.sqrt(q.shape[-1]))
    weights = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
    weights = weights * gate[:, None, None]
    return jnp.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


def packed(
    config: Config, params: Params, images: jax.Array, depths: jax.Array | None = None
) -> Halted:
    """The form "packed": equal to "masked" up to the order of sums."""
    x = embedded(config, params, images)
    batch, tokens, d = x.shape
    rows = jnp.arange(batch * tokens, dtype=jnp.int32)  # where a packed token comes from
    starts = tokens * jnp.arange(batch + 1, dtype=jnp.int32)  # of each image's tokens
    x, total = x.reshape(-1, d), jnp.zeros(batch * tokens)
    computed = jnp.zeros(batch * tokens, jnp.int32)
    given = None if depths is None else depths.reshape(-1)
    size = 128 if jax.default_backend() == "gpu" else 32
    for i, p in enumerate(params["layers"]):
        left = jnp.arange(len(rows), dtype=jnp.int32) < starts[-1]
        computed = computed.at[rows].add(1, mode="drop")
        index = js.token_index(left[None])
        pairs = js.block_masks.document(starts, len(rows), size)
        y = dense(p["qkv"], normalised(p["norm1"], x), index)
        qkv = jnp.split(y.reshape(1, len(rows), 3 * config.heads, -1), 3, 2)
        y = js.sparse_attention(*qkv, pairs).reshape(-1, d)
        x = x + dense(p["out"], y, index)
        y = dense(p["up"], normalised(p["norm2"], x), index, "gelu")
        x = x + dense(p["down"], y, index)
        if i + 1 == config.layers:
            break
        total = total + score(p["halt"], x)
        stays = total < THRESHOLD
        if given is not None:
            stays = given.at[rows].get(mode="fill", fill_value=0) > i + 1
        stays = left & (stays | (rows % tokens == 0))
        (x, total), (rows, starts) = compacted((x, total), stays, rows, starts)
    x = x[starts[:-1]]  # an image's first token is its class token
    logits = normalised(params["norm"], x) @ params["logits"]["w"] + params["logits"]["b"]
    return Halted(logits, computed.reshape(batch, tokens), jnp.zeros(config.layers))


def dense(p: Params, x: jax.Array, index: js.TileIndex, activation: Any = None) -> jax.Array:
    """A dense layer at the packed tokens [capacity,d]; zero in the rows after them."""
    y = js.masked_dense(x[None], p["w"], index, bias=p["b"], activation=activation)
    return y[0]


def compacted(
    values: tuple[jax.Array, ...], stays: jax.Array, rows: jax.Array, starts: jax.Array
) -> tuple[list[jax.Array], tuple[jax.Array, jax.Array]]:
    """Packed values and rows [capacity, ...] with the tokens bool[capacity] that stay moved to the
    front, in order; starts int32[B+1] of the images among them.
    """
    first, packing = js.pack_tokens(values[0][None], stays[None])
    others = [js.pack_tokens(value[None], packing)[0] for value in values[1:]]
    before = jnp.pad(jnp.cumsum(stays, dtype=jnp.int32), (1, 0))
    rows = rows.at[packing.rows].get(mode="fill", fill_value=len(rows))
    return [first, *others], (rows, before[starts])


def run(
    config: Config, form: str, params: Params, images: jax.Array, depths: jax.Array | None = None
) -> Halted:
    """The network in one of FORMS; `depths` int32[B,T], how many layers compute each token,
    replaces the learned scores.
    """
    if form == "packed":
        return packed(config, params, images, depths)
    return in_rows(config, params, images, depths, halting=form == "masked")
