"""A network as a list of operators, and its evaluation in NHWC by JAX.

What multiplies by weights is a function that the caller gives: XLA's operations, or jaxsparse's.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js


class Node(NamedTuple):
    """One operator: names of its operands, name of its result, and what is static.

    A "conv" or "matmul" has a kernel of its own, found by the name of its result.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    static: dict[str, Any]


class Layer(NamedTuple):
    """A kernel f32[kh,kw,C/groups,O] or f32[k,n], and its bias f32[O]."""

    kernel: np.ndarray
    bias: np.ndarray


class Graph(NamedTuple):
    """Nodes in an order of evaluation, their layers and other constants by name, the inputs' shapes
    (of one sample, without the batch) and the names of the results.
    """

    name: str
    nodes: tuple[Node, ...]
    layers: dict[str, Layer]
    constants: dict[str, np.ndarray]
    inputs: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...]


#: (node, x, kernel, bias) -> its result.
Multiply = Callable[[Node, jax.Array, Any, jax.Array], jax.Array]
#: The most heads of `attention_of_one`: its products do the work of all heads for each head.
MOST_HEADS = 16
ACTIVATIONS: dict[str | None, Callable[[jax.Array], jax.Array]] = {
    None: lambda x: x,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


def xla(
    node: Node, x: jax.Array, kernel: jax.Array, bias: jax.Array, precision: str | None = None
) -> jax.Array:
    """A layer through XLA, with a dense kernel; `precision` as in jax.lax."""
    static = node.static
    if node.op == "matmul":
        y = jnp.dot(x, kernel, precision=precision)
    else:
        y = lax.conv_general_dilated(
            x,
            kernel,
            (static["stride"],) * 2,
            static["padding"],
            feature_group_count=static["groups"],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=precision,
        )
    return ACTIVATIONS[static["activation"]](y + bias)


def shifted(
    node: Node, x: jax.Array, kernel: jax.Array, bias: jax.Array, precision: str | None = None
) -> jax.Array:
    """As `xla`, with a depthwise convolution as a sum of shifted images, which XLA fuses: on a CPU
    its convolution of as many groups as channels takes many times as long.
    """
    if node.op == "matmul" or node.static["groups"] == 1:
        return xla(node, x, kernel, bias, precision)
    window, stride = kernel.shape[0], node.static["stride"]
    views = windows(jnp.pad(x, ((0, 0), *node.static["padding"], (0, 0))), window, stride)
    flat = kernel.reshape(window * window, -1)
    y = functools.reduce(jnp.add, [view * row for view, row in zip(views, flat, strict=True)])
    return ACTIVATIONS[node.static["activation"]](y + bias)


def windows(x: jax.Array, window: int, stride: int) -> list[jax.Array]:
    """For each tap of a square window, what it reads for every output: views of [B,H,W,C]."""
    height, width = ((n - window) // stride * stride + 1 for n in x.shape[1:3])
    taps = itertools.product(range(window), repeat=2)
    return [x[:, i : i + height : stride, j : j + width : stride] for i, j in taps]


def ours(
    node: Node, x: jax.Array, kernel: js.PrunedWeight, bias: jax.Array, precision: str | None = None
) -> jax.Array:
    """A layer through jaxsparse."""
    end = {"bias": bias, "activation": node.static["activation"], "precision": precision}
    if node.op == "matmul":
        return js.pruned_matmul(x, kernel, **end)
    static = {"strides": node.static["stride"], "padding": node.static["padding"]}
    return js.pruned_conv(x, kernel, **static, **end)


def evaluate(
    graph: Graph,
    weights: Mapping[str, tuple[Any, jax.Array]],
    inputs: Mapping[str, jax.Array],
    multiply: Multiply = xla,
) -> tuple[jax.Array, ...]:
    """The graph's results on `inputs`; `weights` are (kernel, bias) by the layer's name."""
    dtype = next(iter(inputs.values())).dtype
    values = dict(inputs) | {k: jnp.asarray(v, dtype) for k, v in graph.constants.items()}
    for node in graph.nodes:
        args = [values[name] for name in node.inputs]
        if node.output in graph.layers:
            values[node.output] = multiply(node, args[0], *weights[node.output])
        else:
            values[node.output] = OPERATORS[node.op](node.static, *args)
    return tuple(values[name] for name in graph.outputs)


def add(static: dict[str, Any], a: jax.Array, b: jax.Array) -> jax.Array:
    """a + b, then the activation."""
    return ACTIVATIONS[static["activation"]](a + b)


def max_pool(static: dict[str, Any], x: jax.Array) -> jax.Array:
    """The greatest of each window, of those pixels of it that exist: of shifted images, first of
    rows and then of columns, which takes a small part of the time of `lax.reduce_window` on a CPU.
    """
    window, stride = static["window"], static["stride"]
    x = jnp.pad(x, ((0, 0), *static["padding"], (0, 0)), constant_values=-jnp.inf)
    for axis in (1, 2):
        count = (x.shape[axis] - window) // stride + 1
        ends = [(i, i + (count - 1) * stride + 1) for i in range(window)]
        parts = [lax.slice_in_dim(x, *each, stride, axis) for each in ends]
        x = functools.reduce(jnp.maximum, parts)
    return x


def attention(
    static: dict[str, Any], q: jax.Array, k: jax.Array, v: jax.Array, *cache: jax.Array
) -> jax.Array:
    """Softmax attention of [B,T,D] in heads; after the `cache` [B,S,D] of earlier keys and values,
    if there is one.
    """
    heads = static["heads"]
    if cache and q.shape[1] == 1 and heads <= MOST_HEADS:
        return attention_of_one(heads, q, (cache[0], k), (cache[1], v))
    if cache:
        k, v = (jnp.concatenate([old, new], 1) for old, new in zip(cache, (k, v), strict=True))
    split = [x.reshape(*x.shape[:2], heads, -1) for x in (q, k, v)]
    scores = jnp.einsum("btnh,bsnh->bnts", *split[:2]) * split[0].shape[-1] ** -0.5
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores), split[2]).reshape(q.shape)


def attention_of_one(
    heads: int, q: jax.Array, keys: tuple[jax.Array, ...], values: tuple[jax.Array, ...]
) -> jax.Array:
    """Attention of one token [B,1,D] to parts [B,S,D] of keys and values, none of which is copied:
    the query, in a column for each head with zeros for the other heads, makes the scores of all
    heads one product of the keys as they are.
    """
    width = q.shape[-1] // heads
    own = jnp.asarray(np.kron(np.eye(heads), np.ones((width, 1))), q.dtype)
    columns = q[:, 0, :, None] * own
    scores = [jnp.einsum("bsd,bdn->bsn", part, columns) for part in keys]
    shares = jax.nn.softmax(jnp.concatenate(scores, 1) * width**-0.5, axis=1)
    ends = list(itertools.accumulate(part.shape[1] for part in values))
    parts = jnp.split(shares, ends[:-1], axis=1)
    every = sum(jnp.einsum("bsn,bsd->bnd", *each) for each in zip(parts, values, strict=True))
    return (every * own.T).sum(1)[:, None]


def norm(static: dict[str, Any], x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Layer normalisation of the last axis."""
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * scale + shift


OPERATORS: dict[str, Callable[..., jax.Array]] = {
    "add": add,
    "max_pool": max_pool,
    "attention": attention,
    "norm": norm,
    "mean": lambda static, x: x.mean((1, 2)),
    "flatten": lambda static, x: x.reshape(len(x), -1),
    "concat": lambda static, *xs: jnp.concatenate(xs, -1),
    "slice": lambda static, x: x[..., static["start"] : static["stop"]],
    "enlarge": lambda static, x: x.repeat(2, 1).repeat(2, 2),
}
