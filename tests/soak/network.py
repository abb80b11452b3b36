"""A small network with a masked convolution, attention under a mask, experts and a pruned head, and
the same network of dense operations.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

BATCH, SIDE, WIDTH, HEADS, EXPERTS, TOP_K, CLASSES = 4, 12, 16, 2, 6, 2, 4
Params = dict[str, Any]


class Batch(NamedTuple):
    """Images [B, H, W, 1], the pixels that count, the pairs of pixels that attend, and classes."""

    x: jax.Array
    mask: jax.Array
    keep: jax.Array
    label: jax.Array


def initial(seed: int) -> Params:
    """Random parameters; the head is a pruned weight, whose kept values are trained."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, fan: int) -> np.ndarray:
        return (rng.standard_normal(shape) / fan**0.5).astype(np.float32)

    head = normal(WIDTH, 16 * CLASSES, fan=WIDTH)
    head[rng.random(head.shape) < 0.7] = 0
    weights: dict[str, Any] = {
        "first": normal(3, 3, 1, WIDTH, fan=9),
        "second": normal(3, 3, WIDTH, WIDTH, fan=9 * WIDTH),
        "qkv": normal(WIDTH, 3 * WIDTH, fan=WIDTH),
        "router": normal(WIDTH, EXPERTS, fan=WIDTH),
        "up": normal(EXPERTS, WIDTH, 2 * WIDTH, fan=WIDTH),
        "down": normal(EXPERTS, 2 * WIDTH, WIDTH, fan=2 * WIDTH),
        "bias": np.zeros(WIDTH, np.float32),
    }
    params: Params = {name: jnp.asarray(v) for name, v in weights.items()}
    pruned = js.pruned.inspect(head)
    return params | {"head": dataclasses.replace(pruned, values=jnp.asarray(pruned.values))}


def batch(seed: int, step: int) -> Batch:
    """Noise, brighter in the quarter that is the class; masks of 5 % to all of the pixels."""
    rng = np.random.default_rng((seed, step))
    x = rng.standard_normal((BATCH, SIDE, SIDE, 1)).astype(np.float32)
    label, half = rng.integers(0, CLASSES, BATCH).astype(np.int32), SIDE // 2
    for image, at in zip(x, label, strict=True):
        image[at // 2 * half :, at % 2 * half :][:half, :half] += 0.5
    mask = rng.random((BATCH, SIDE, SIDE)) < rng.uniform(0.05, 1)
    near = abs(np.subtract.outer(np.arange(SIDE**2), np.arange(SIDE**2))) < 3 * SIDE
    keep = near & mask.reshape(BATCH, 1, 1, SIDE**2)
    return Batch(*map(jnp.asarray, (x, mask, keep, label)))


class Sparse:
    """The operations of this package."""

    def conv(self, x: Any, kernel: Any, mask: Any, bias: Any, base: Any) -> Any:
        return js.masked_conv(x, kernel, mask, bias=bias, activation="silu", base=base)

    def attention(self, q: Any, k: Any, v: Any, keep: Any) -> Any:
        return js.sparse_attention(q, k, v, js.BlockMask.from_dense(keep, 16))

    def experts(self, x: Any, up: Any, down: Any, ids: Any, weights: Any) -> Any:
        to = js.route(ids, EXPERTS)
        h = jax.nn.silu(js.grouped_matmul(x, up, to.group_sizes, gather=to.gather))
        return js.grouped_matmul(
            h,
            down,
            to.group_sizes,
            scatter=to.scatter,
            row_weights=weights.reshape(-1)[to.order],
            num_rows=x.shape[0],
        )

    def head(self, x: Any, weight: js.PrunedWeight) -> Any:
        return js.pruned_matmul(x, weight)


class Dense:
    """The same, all of it computed, and masked afterwards."""

    def conv(self, x: Any, kernel: Any, mask: Any, bias: Any, base: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names)
        return jnp.where(mask[..., None], jax.nn.silu(y + bias), 0 if base is None else base)

    def attention(self, q: Any, k: Any, v: Any, keep: Any) -> Any:
        scores = jnp.einsum("btnh,bsnh->bnts", q, k) * q.shape[-1] ** -0.5
        top = jnp.max(jnp.where(keep, scores, -1e30), -1, keepdims=True)
        weights = jnp.where(keep, jnp.exp(jnp.where(keep, scores - top, 0)), 0)
        total = weights.sum(-1, keepdims=True)
        return jnp.einsum("bnts,bsnh->btnh", weights / jnp.where(total == 0, 1, total), v)

    def experts(self, x: Any, up: Any, down: Any, ids: Any, weights: Any) -> Any:
        h = jax.nn.silu(jnp.einsum("td,edf->tef", x, up))
        y = jnp.einsum("tef,efd->ted", h, down)
        share = (jax.nn.one_hot(ids, EXPERTS) * weights[..., None]).sum(1)
        return jnp.einsum("ted,te->td", y, share)

    def head(self, x: Any, weight: js.PrunedWeight) -> Any:
        return x @ weight.to_dense()


def loss(
    params: Params, given: Batch, ops: Sparse | Dense, ids: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Cross entropy, and the experts of each pixel: `ids` where they are given, else the best."""
    y = ops.conv(given.x, params["first"], given.mask, params["bias"], None)
    y = ops.conv(y, params["second"], given.mask, params["bias"], y)
    tokens = y.reshape(BATCH, SIDE**2, WIDTH)
    q, k, v = jnp.split(tokens @ params["qkv"], 3, -1)
    heads = [a.reshape(BATCH, SIDE**2, HEADS, -1) for a in (q, k, v)]
    tokens = tokens + ops.attention(*heads, given.keep).reshape(tokens.shape)
    flat = tokens.reshape(-1, WIDTH)
    shares = jax.nn.softmax(flat @ params["router"])
    ids = jax.lax.top_k(shares, TOP_K)[1] if ids is None else ids
    weights = jnp.take_along_axis(shares, ids, -1)
    flat = flat + ops.experts(flat, params["up"], params["down"], ids, weights)
    quarters = flat.reshape(BATCH, 2, SIDE // 2, 2, SIDE // 2, WIDTH).mean((2, 4))
    scores = ops.head(quarters.reshape(BATCH * 4, WIDTH), params["head"])
    logits = (scores.reshape(BATCH, 4, CLASSES, 16) * _own_quarter()).sum((1, 3))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), given.label[:, None], 1)
    return -chosen.mean(), ids


def _own_quarter() -> jax.Array:
    """A class counts for what the head sees in its quarter: [4, classes, 1]."""
    return jnp.eye(4, CLASSES, dtype=jnp.float32)[..., None]
