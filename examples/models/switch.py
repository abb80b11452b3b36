"""An encoder-decoder of the shape of Switch-base (Switch Transformers, 2): T5's layers, where every
other feed-forward network is a mixture of experts and each token goes through its best one.

The experts in four forms of one set of weights. "padded": every expert has as many rows as its
capacity, and tokens beyond it are dropped, as in the paper. "whole": the same with room for the
longest expert, which a program that serves another batch cannot know when it is compiled. "ragged":
`jax.lax.ragged_dot` on rows sorted by expert. "sparse": `js.nn.linen.MoE`, which reads the rows of
each expert where they are. The last three drop nothing. The form "dense" is another network: T5,
without experts.

Positions are learned; T5's bias of relative positions is left out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js

FORMS = ("dense", "padded", "whole", "ragged", "sparse")
HEAD = 64
BALANCE = 0.01  # of the load-balance loss
Params = dict[str, Any]


class Config(NamedTuple):
    """Sizes. `tokens`: of the encoder and of the decoder. Rows of an expert over the mean:
    `capacity` in the form "padded", `longest` in "whole".
    """

    layers: int
    d: int
    hidden: int
    experts: int
    vocabulary: int
    tokens: tuple[int, int]
    capacity: float = 1.25
    longest: float = 1.0


class Batch(NamedTuple):
    """Tokens of the encoder and of the decoder, int32[B,T]; the decoder has one more."""

    source: jax.Array
    target: jax.Array


class Outcome(NamedTuple):
    """Logits [B,T,vocabulary]; the sum of the load-balance losses; the share of tokens that padded
    experts dropped; rows of the longest expert of all layers, over the mean.
    """

    logits: jax.Array
    balance: jax.Array
    dropped: jax.Array
    longest: jax.Array


class Routed(NamedTuple):
    """What one layer's experts give [t,d], and the rest of `Outcome` for it."""

    y: jax.Array
    balance: jax.Array
    dropped: jax.Array
    longest: jax.Array


def initial(config: Config, form: str, dtype: str, seed: int = 0) -> Params:
    """Random parameters, drawn on the device: the experts of 256 do not fit into a host's memory
    twice.
    """
    keys = iter(jax.random.split(jax.random.key(seed), 40 * config.layers + 8))
    d, hidden, experts = config.d, config.hidden, config.experts

    def draw(*shape: int, scale: float | None = None) -> jax.Array:
        scale = shape[-2] ** -0.5 if scale is None else scale
        return (jax.random.normal(next(keys), shape, jnp.float32) * scale).astype(dtype)

    def layer(i: int, crossed: bool) -> Params:
        p = {name: draw(d, n * d) for name, n in (("qkv", 3), ("out", 1))}
        if crossed:
            p |= {"cross_q": draw(d, d), "cross_kv": draw(d, 2 * d), "cross_out": draw(d, d)}
        if i % 2 == 0 or form == "dense":
            return p | {"up": draw(d, hidden), "down": draw(hidden, d)}
        router = jax.random.normal(next(keys), (d, experts), jnp.float32) * d**-0.5
        up, down = draw(experts, d, hidden), draw(experts, hidden, d)
        return p | {"experts": {"router": router, "up": up, "down": down}}

    return {
        "words": draw(config.vocabulary, d, scale=1.0),
        "places": [draw(n, d, scale=1.0) for n in config.tokens],
        "encoder": [layer(i, False) for i in range(config.layers)],
        "decoder": [layer(i, True) for i in range(config.layers)],
    }


def batch_of(config: Config, rows: int, seed: int = 0) -> Batch:
    """Random tokens."""
    rng = np.random.default_rng(seed)
    shapes = (rows, config.tokens[0]), (rows, config.tokens[1] + 1)
    return Batch(*(jnp.asarray(rng.integers(0, config.vocabulary, s), jnp.int32) for s in shapes))


def norm(x: jax.Array) -> jax.Array:
    """Each token over its root mean square."""
    wide = x.astype(jnp.float32)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    return wide.astype(x.dtype)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False) -> jax.Array:
    """Of [B,T,d] with heads of 64; cuDNN's on a GPU in half precision."""
    half = jax.default_backend() == "gpu" and q.dtype != jnp.float32
    heads = (x.reshape(*x.shape[:2], -1, HEAD) for x in (q, k, v))
    name = "cudnn" if half else "xla"
    y = jax.nn.dot_product_attention(*heads, is_causal=causal, implementation=name)
    return y.reshape(q.shape)


def forward(config: Config, form: str, params: Params, batch: Batch) -> Outcome:
    """The network in one of FORMS; the parameters of "dense" are its own."""
    layers: list[Routed] = []

    def feed(p: Params, x: jax.Array) -> jax.Array:
        if "up" in p:
            return x + jax.nn.relu(norm(x) @ p["up"]) @ p["down"]
        found = experts(config, form, p["experts"], norm(x).reshape(-1, config.d))
        layers.append(found)
        return x + found.y.reshape(x.shape)

    x = params["words"][batch.source] + params["places"][0]
    for p in params["encoder"]:
        x = x + attention(*jnp.split(norm(x) @ p["qkv"], 3, -1)) @ p["out"]
        x = feed(p, x)
    memory = norm(x)
    x = params["words"][batch.target[:, :-1]] + params["places"][1]
    for p in params["decoder"]:
        x = x + attention(*jnp.split(norm(x) @ p["qkv"], 3, -1), causal=True) @ p["out"]
        k, v = jnp.split(memory @ p["cross_kv"], 2, -1)
        x = x + attention(norm(x) @ p["cross_q"], k, v) @ p["cross_out"]
        x = feed(p, x)
    logits = norm(x) @ params["words"].T
    numbers = [jnp.stack([f.balance, f.dropped, f.longest]) for f in layers]
    found = jnp.stack(numbers or [jnp.zeros(3)])
    return Outcome(logits, found[:, 0].sum(), found[:, 1].mean(), found[:, 2].max())


def experts(config: Config, form: str, p: Params, x: jax.Array) -> Routed:
    """Tokens [t,d] through their experts; "sparse" does not say how long the longest is."""
    if form == "sparse":
        layer = js.nn.linen.MoE(config.experts, config.hidden, top_k=1, activation="relu")
        y, loss = layer.apply({"params": p}, x)
        return Routed(y, loss, jnp.zeros(()), jnp.zeros(()))
    logits = jnp.matmul(x.astype(jnp.float32), p["router"], precision=lax.Precision.HIGHEST)
    probabilities = jax.nn.softmax(logits)
    ids = jnp.argmax(logits, -1)
    weights = jnp.take_along_axis(probabilities, ids[:, None], 1)
    chosen = jax.nn.one_hot(ids, config.experts, dtype=jnp.int32)
    sizes = chosen.sum(0)
    shares = sizes.astype(jnp.float32) / len(x)
    loss = config.experts * (shares * probabilities.mean(0)).sum()
    longest = config.experts * shares.max()
    if form == "ragged":
        order = jnp.argsort(ids)
        h = jax.nn.relu(lax.ragged_dot(x[order], p["up"], sizes))
        y = jnp.zeros_like(x).at[order].set(lax.ragged_dot(h, p["down"], sizes))
        return Routed((weights * y).astype(x.dtype), loss, jnp.zeros(()), longest)
    capacity = config.longest if form == "whole" else config.capacity
    room = int(np.ceil(capacity * len(x) / config.experts - 1e-3))
    place = (jnp.cumsum(chosen, 0) * chosen).sum(1) - 1  # among the tokens of the expert
    kept = place < room
    at = ids, jnp.where(kept, place, room)
    wide = jnp.zeros((config.experts, room, config.d), x.dtype).at[at].set(x, mode="drop")
    h = jax.nn.relu(jnp.einsum("etd,edh->eth", wide, p["up"]))
    y = jnp.einsum("eth,ehd->etd", h, p["down"]).at[at].get(mode="fill", fill_value=0)
    return Routed((weights * y).astype(x.dtype), loss, 1 - kept.mean(dtype=jnp.float32), longest)


def loss_of(found: Outcome, batch: Batch) -> jax.Array:
    """Cross-entropy of the next token, plus the load-balance loss."""
    scores = jax.nn.log_softmax(found.logits.astype(jnp.float32))
    entropy = -jnp.take_along_axis(scores, batch.target[:, 1:, None], -1).mean()
    return entropy + BALANCE * found.balance


def train_step(
    config: Config, form: str, rate: float, params: Params, batch: Batch
) -> tuple[Params, jax.Array]:
    """One step of gradient descent: (parameters, loss)."""

    def loss(params: Params) -> jax.Array:
        return loss_of(forward(config, form, params, batch), batch)

    def step(p: jax.Array, gradient: jax.Array) -> jax.Array:
        return p - (rate * gradient.astype(jnp.float32)).astype(p.dtype)

    value, gradient = jax.value_and_grad(loss)(params)
    return jax.tree.map(step, params, gradient), value
