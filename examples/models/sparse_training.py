"""An MLP whose hidden weights are pruned by magnitude, block by block, while it trains.

Weights are [outputs, inputs] and activations [features, batch], so that a block of 32 outputs by 1
or 64 inputs is a block of the first operand. Two forms of every product, equal but for rounding:
"sparse" multiplies the kept blocks, forward and backward, and computes the weights' gradient at
them only; "multiplied" is XLA's dense product of the masked weight.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

MOMENTUM = 0.9
Block = tuple[int, int]


class Way(NamedTuple):
    """How hidden layers multiply: blocks of this size, in one of the two forms (see above), about
    this share of them kept; None: unknown.
    """

    block: Block
    form: str
    density: float | None = None


class Layer(NamedTuple):
    """Weight f32[outputs, inputs] and bias f32[outputs]."""

    w: jax.Array
    b: jax.Array


def initial(widths: tuple[int, ...], seed: int = 0) -> list[Layer]:
    """Random layers from each width to the next."""
    rng = np.random.default_rng(seed)
    made = []
    for inputs, outputs in itertools.pairwise(widths):
        w = rng.standard_normal((outputs, inputs), np.float32) * np.float32((2 / inputs) ** 0.5)
        made.append(Layer(jnp.asarray(w), jnp.zeros(outputs, jnp.float32)))
    return made


def magnitude_mask(w: jax.Array, sparsity: jax.Array, block: Block) -> jax.Array:
    """bool[ceil(outputs/rows), ceil(inputs/columns)]: the blocks with the largest sum of
    magnitudes; a share `sparsity` (f32[]) of them is left out.
    """
    rows, columns = (-(-n // g) for n, g in zip(w.shape, block, strict=True))
    padding = [(0, n * g - m) for n, g, m in zip((rows, columns), block, w.shape, strict=True)]
    blocks = jnp.pad(jnp.abs(w), padding).reshape(rows, block[0], columns, block[1])
    scores = blocks.sum((1, 3))
    drop = jnp.round(sparsity * scores.size).astype(jnp.int32)
    return scores >= ranked(scores, jnp.clip(drop, 0, scores.size - 1))


def ranked(values: jax.Array, rank: jax.Array) -> jax.Array:
    """The entry of f32 `values`, none negative, that `rank` entries are sorted before: found bit by
    bit, which costs 31 counts and no sort.
    """
    codes = jax.lax.bitcast_convert_type(values, jnp.int32)  # ordered as the values are

    def bit(i: jax.Array, found: jax.Array) -> jax.Array:
        more = found | jnp.left_shift(jnp.int32(1), 30 - i)
        return jnp.where((codes < more).sum(dtype=jnp.int32) <= rank, more, found)

    code = jax.lax.fori_loop(0, 31, bit, jnp.int32(0))
    return jax.lax.bitcast_convert_type(code, jnp.float32)


def hidden_masks(params: list[Layer], sparsity: jax.Array, block: Block) -> list[jax.Array]:
    """A mask for each layer but the first and the last, which stay dense."""
    return [magnitude_mask(layer.w, sparsity, block) for layer in params[1:-1]]


def product(w: jax.Array, mask: jax.Array, h: jax.Array, way: Way) -> jax.Array:
    """The kept blocks of w[outputs, inputs] times h[inputs, batch]."""
    block = way.block
    if way.form == "sparse":
        return js.masked_matmul(w, h, a_mask=mask, granularity=block, density=way.density)
    keep = jnp.repeat(jnp.repeat(mask, block[0], 0), block[1], 1)[: w.shape[0], : w.shape[1]]
    return jnp.where(keep, w, jnp.zeros_like(w)) @ h


def forward(params: list[Layer], masks: list[jax.Array], x: jax.Array, way: Way) -> jax.Array:
    """Images f32[batch, pixels] -> logits f32[batch, classes]."""
    first, *hidden, last = params
    h = jax.nn.relu(first.w @ x.T + first.b[:, None])
    for layer, mask in zip(hidden, masks, strict=True):
        h = jax.nn.relu(product(layer.w, mask, h, way) + layer.b[:, None])
    return (last.w @ h + last.b[:, None]).T


def loss_of(
    params: list[Layer], masks: list[jax.Array], x: jax.Array, y: jax.Array, way: Way
) -> jax.Array:
    """Mean cross-entropy with labels int32[batch]."""
    scores = jax.nn.log_softmax(forward(params, masks, x, way))
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


def train_step(
    state: tuple[Any, Any],
    masks: list[jax.Array],
    x: jax.Array,
    y: jax.Array,
    rate: jax.Array,
    *,
    way: Way,
) -> tuple[Any, Any]:
    """One step of gradient descent with momentum; the state is (parameters, velocities)."""
    params, velocity = state
    gradient = jax.grad(loss_of)(params, masks, x, y, way)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - rate * v, params, velocity), velocity
