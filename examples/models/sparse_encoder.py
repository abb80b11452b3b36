"""An encoder of BERT's shape that learns hidden words while its weights exist in blocks only.

Every weight of its layers is [outputs, inputs], activations are [features, tokens], and texts lie
side by side in one row of tokens. Two forms, equal but for rounding. "sparse": a weight is the
array of its kept blocks (`js.kept_matmul`), and so are its gradient and Adam's moments; attention
computes the blocks of scores within a text (`js.sparse_attention`). "multiplied": dense weights,
moments and attention, each multiplied by its mask.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxsparse as js
from models.sparse_training import ranked

HEAD, SCORES = 64, 64  # width of a head; side of a block of attention's scores
HIDDEN_WORD = 1  # the token that stands for a hidden word
GROWN = 0.02  # share of the kept blocks that a step replaces by random ones
OPTIMIZER = optax.adam(2e-3)
Weights = dict[str, jax.Array]
Kept = dict[str, js.KeptBlocks]


class Shape(NamedTuple):
    """Layers, their width (a multiple of 64), tokens of a batch, and words."""

    layers: int
    width: int
    tokens: int
    words: int

    def weights(self) -> dict[str, tuple[int, int]]:
        """Name -> (outputs, inputs) of every weight that has a mask."""
        d = self.width
        one = {"qkv": (3 * d, d), "out": (d, d), "up": (4 * d, d), "down": (d, 4 * d)}
        return {f"{i}.{name}": size for i in range(self.layers) for name, size in one.items()}


class Way(NamedTuple):
    """The encoder's shape, the blocks of its weights, the share of them that exists, the form."""

    shape: Shape
    block: tuple[int, int]
    density: float
    form: str

    def room(self, name: str) -> int:
        """How many blocks of a weight exist."""
        grid = (-(-n // g) for n, g in zip(self.shape.weights()[name], self.block, strict=True))
        return max(1, round(self.density * int(np.prod(list(grid)))))


class Texts(NamedTuple):
    """A batch: int32[tokens], words as read and as they are; int32[texts + 1], where texts start
    and the last ends."""

    read: jax.Array
    words: jax.Array
    ends: jax.Array


class State(NamedTuple):
    """What a step changes: parameters, Adam's state, the blocks that exist."""

    params: dict[str, Weights]
    moments: Any
    kept: Kept


def initial(way: Way, seed: int = 0) -> State:
    """Random parameters, the same ones in both forms, under a random mask."""
    rng, shape = np.random.default_rng(seed), way.shape
    kept, weights = {}, {}
    for name, size in shape.weights().items():
        grid = [-(-n // g) for n, g in zip(size, way.block, strict=True)]
        mask = rng.permutation(int(np.prod(grid))) < way.room(name)
        kept[name] = js.kept_blocks(mask.reshape(grid), size, way.block, capacity=way.room(name))
        w = rng.standard_normal(size, np.float32) * np.float32((way.density * size[1]) ** -0.5)
        values = kept[name].take(w)
        weights[name] = values if way.form == "sparse" else kept[name].dense(values)
    rest = {
        "words": rng.standard_normal((shape.words, shape.width), np.float32) / shape.width**0.5,
        "places": rng.standard_normal((512, shape.width), np.float32) / shape.width**0.5,
    }
    for name in (f"{i}.{n}" for i in range(shape.layers) for n in ("norm1", "norm2")):
        rest[name] = np.ones((shape.width, 1), np.float32)
    params = {"weights": weights, "rest": {k: jnp.asarray(v, jnp.float32) for k, v in rest.items()}}
    return State(params, OPTIMIZER.init(params), kept)


def product(way: Way, w: jax.Array, kept: js.KeptBlocks, h: jax.Array) -> jax.Array:
    """A weight in this form times h[inputs, tokens]."""
    if way.form == "sparse":
        return js.kept_matmul(w, kept, h, density=way.density)
    return (w * entries(kept)) @ h


def entries(kept: js.KeptBlocks) -> jax.Array:
    """f32[outputs, inputs]: one where a block exists."""
    (rows, columns), (m, k) = kept.granularity, kept.shape
    wide = jnp.repeat(jnp.repeat(kept.mask, rows, 0), columns, 1)
    return wide[:m, :k].astype(jnp.float32)


def attention(way: Way, qkv: jax.Array, ends: jax.Array) -> jax.Array:
    """qkv[3 * d, tokens] -> [d, tokens]: each token attends to its own text."""
    tokens = qkv.shape[1]
    q, k, v = (part.T.reshape(1, tokens, -1, HEAD) for part in jnp.split(qkv, 3))
    if way.form == "sparse":
        mask = js.block_masks.document(ends, tokens, SCORES)
        y = js.sparse_attention(q, k, v, mask)
    else:
        text = (jnp.arange(tokens)[:, None] >= ends[None]).sum(1)
        mask = (text[:, None] == text[None])[None, None]
        y = jax.nn.dot_product_attention(q, k, v, mask=mask)
    return y.reshape(tokens, -1).T


def forward(way: Way, params: dict[str, Weights], kept: Kept, texts: Texts) -> jax.Array:
    """Scores f32[words, tokens] of what each word is."""
    weights, rest = params["weights"], params["rest"]
    tokens = jnp.arange(way.shape.tokens, dtype=jnp.int32)
    text = (tokens[:, None] >= texts.ends[None]).sum(1, dtype=jnp.int32)
    start = texts.ends[jnp.maximum(text - 1, 0)]
    h = (rest["words"][texts.read] + rest["places"][(tokens - start) % 512]).T
    for i in range(way.shape.layers):

        def weight(name: str, x: jax.Array, layer: int = i) -> jax.Array:
            key = f"{layer}.{name}"
            return product(way, weights[key], kept[key], x)

        y = attention(way, weight("qkv", norm(h, rest[f"{i}.norm1"])), texts.ends)
        h = h + weight("out", y)
        y = jax.nn.gelu(weight("up", norm(h, rest[f"{i}.norm2"])))
        h = h + weight("down", y)
    return rest["words"] @ norm(h, jnp.ones((), jnp.float32))


def norm(h: jax.Array, scale: jax.Array) -> jax.Array:
    """Each token's features with mean 0 and variance 1, scaled."""
    h = h - h.mean(0, keepdims=True)
    return scale * h * jax.lax.rsqrt((h * h).mean(0, keepdims=True) + 1e-5)


def loss_of(params: dict[str, Weights], kept: Kept, texts: Texts, way: Way) -> jax.Array:
    """Mean cross-entropy of the hidden words."""
    scores = jax.nn.log_softmax(forward(way, params, kept, texts), axis=0)
    hidden = texts.read != texts.words
    right = jnp.take_along_axis(scores, texts.words[None], 0)[0]
    return -jnp.where(hidden, right, 0.0).sum() / jnp.maximum(hidden.sum(), 1).astype(jnp.float32)


def right_words(params: dict[str, Weights], kept: Kept, texts: Texts, way: Way) -> jax.Array:
    """int32[2]: hidden words that are found, and all of them."""
    hidden = texts.read != texts.words
    found = forward(way, params, kept, texts).argmax(0).astype(jnp.int32) == texts.words
    return jnp.stack([(found & hidden).sum(dtype=jnp.int32), hidden.sum(dtype=jnp.int32)])


def new_mask(way: Way, name: str, w: jax.Array, old: js.KeptBlocks, key: jax.Array) -> jax.Array:
    """The blocks of largest magnitude, and a few random ones in place of the others."""
    if way.form == "sparse":
        sums = jnp.abs(w).sum((1, 2))
        scores = sums.at[old.slots].get(mode="fill", fill_value=0)
    else:
        (rows, columns), (high, wide) = old.granularity, old.slots.shape
        padding = [(0, high * rows - w.shape[0]), (0, wide * columns - w.shape[1])]
        scores = jnp.pad(jnp.abs(w), padding).reshape(high, rows, wide, columns).sum((1, 3))
    room = way.room(name)
    stay = room - max(1, int(GROWN * room)) if room < scores.size else room
    kept = (scores >= ranked(scores, jnp.int32(min(scores.size - stay, scores.size - 1)))) & (
        scores > 0
    )
    drawn = jnp.where(kept, jnp.float32(2), jax.random.uniform(key, scores.shape, jnp.float32))
    return drawn >= ranked(drawn, jnp.int32(scores.size - room))


@functools.partial(jax.jit, static_argnames="way", donate_argnums=0)
def train_step(state: State, texts: Texts, key: jax.Array, *, way: Way) -> tuple[State, jax.Array]:
    """One step of Adam under a mask of its own; (state, loss)."""
    params, weights, kept = state.params, state.params["weights"], {}
    for i, (name, old) in enumerate(state.kept.items()):
        mask = new_mask(way, name, weights[name], old, jax.random.fold_in(key, i))
        size = way.shape.weights()[name]
        kept[name] = js.kept_blocks(mask, size, way.block, capacity=way.room(name))

    def moved(value: jax.Array, name: str) -> jax.Array:
        if not name:
            return value
        if way.form == "sparse":
            return kept[name].move(value, state.kept[name])
        return value * entries(kept[name])

    names = {"weights": {n: n for n in weights}, "rest": dict.fromkeys(params["rest"], "")}
    params = jax.tree.map(moved, params, names)
    moments = optax.tree_map_params(OPTIMIZER, moved, state.moments, names)
    loss, gradient = jax.value_and_grad(loss_of)(params, kept, texts, way)
    updates, moments = OPTIMIZER.update(gradient, moments)
    changed: Any = optax.apply_updates(params, updates)
    return State(changed, moments, kept), loss
