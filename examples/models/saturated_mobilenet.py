"""MobileNetV2, small, of flax layers whose ReLU6 records what it saturates.

Without masks and recorders every layer is flax's own dense one; the parameters are the same in all
forms. With recorders the hidden layer of the classifier is a frozen `BoundedDense`.
"""

from typing import Any, NamedTuple

import flax.linen as linen
import jax
import jax.numpy as jnp

import jaxsparse as js
from jaxsparse.nn.linen import BoundedDense, MaskedConv, Sequential

Block = tuple[int, int, int]
#: (expansion, features, stride) of each block, behind a stem of 16 features at stride 2.
BLOCKS = ((1, 16, 1), (6, 24, 1), (6, 24, 1), (6, 32, 2), (6, 32, 1), (6, 64, 2), (6, 64, 1))
SMALL = ((1, 8, 1), (2, 8, 2))
STEM, LAST, HIDDEN, UPPER = 16, 128, 64, 6.0
Params = dict[str, Any]


class Bottleneck(linen.Module):
    """1x1 with ReLU6, depthwise 3x3 with ReLU6, 1x1; recorders go from layer to layer."""

    expansion: int
    features: int
    stride: int
    use_bias: bool
    record: tuple[bool, bool]

    @linen.compact
    def __call__(self, x: jax.Array, before: Any, after: Any) -> jax.Array:
        """`before` and `after`: masks of the block's input and result, or None."""
        wide = self.expansion * x.shape[-1]
        every: dict[str, Any] = {"use_bias": self.use_bias}
        saturated = every | {"activation": "relu6"}
        first, second = ({"record": record} for record in self.record)
        windows = {"strides": self.stride, "feature_group_count": wide}
        y = Sequential(
            [
                MaskedConv(wide, (1, 1), name="expand", **saturated, **first),
                MaskedConv(wide, (3, 3), name="depthwise", **windows, **saturated, **second),
                MaskedConv(self.features, (1, 1), name="project", **every),
            ]
        )(x, [before, after, after])
        return x + y if x.shape == y.shape else y


class Features(linen.Module):
    """Images f32[B,32,32,1] -> features f32[B,LAST], and the classifier's parameters beside."""

    blocks: tuple[Block, ...]
    use_bias: bool = True
    record: frozenset[str] = frozenset()

    @linen.compact
    def __call__(self, x: jax.Array, masked: bool = False) -> jax.Array:
        """`masked`: through js.masked_conv, at every pixel; else through XLA."""
        batch, side = x.shape[0], x.shape[1] // 2
        masks: dict[int, Any] = {}

        def everywhere(side: int) -> Any:
            if masked and side not in masks:
                masks[side] = js.tile_index(jnp.ones((batch, side, side), bool))
            return masks.get(side)

        options: dict[str, Any] = {"use_bias": self.use_bias, "activation": "relu6"}
        stem = MaskedConv(STEM, (3, 3), strides=2, name="stem", **options)
        x = stem(x, everywhere(side))
        for i, (expansion, features, stride) in enumerate(self.blocks):
            before, side = everywhere(side), side // stride
            name = f"block{i + 1}"
            record = f"{name}/expand" in self.record, f"{name}/depthwise" in self.record
            block = Bottleneck(expansion, features, stride, self.use_bias, record, name=name)
            x = block(x, before, everywhere(side))
        x = MaskedConv(LAST, (1, 1), name="last", **options)(x, everywhere(side))
        return x.mean((1, 2))


class Form(NamedTuple):
    """How the network is computed: its blocks; with biases or without; through js.masked_conv or
    XLA; the layers that record ("block1/expand", "hidden"), which needs js.masked_conv.
    """

    blocks: tuple[Block, ...]
    use_bias: bool
    masked: bool = False
    record: frozenset[str] = frozenset()


def initial(blocks: tuple[Block, ...], use_bias: bool, side: int = 32) -> Params:
    """Random parameters of the features and of the classifier's two layers."""
    features = Features(blocks, use_bias)
    first, second, third = jax.random.split(jax.random.key(0), 3)
    he = jax.nn.initializers.he_normal()
    found: Params = features.init(first, jnp.zeros((1, side, side, 1)))["params"]
    found = jax.tree.map(lambda v: 2**0.5 * v, found)  # flax's are for no activation
    hidden = {"kernel": he(second, (LAST, HIDDEN)), "bias": jnp.zeros(HIDDEN)}
    logits = {"kernel": he(third, (HIDDEN, 10)), "bias": jnp.zeros(10)}
    return {"features": found, "hidden": hidden, "logits": logits}


def dense(x: jax.Array, p: Params) -> jax.Array:
    """A dense layer by XLA."""
    return x @ p["kernel"] + p["bias"]


def logits_of(form: Form, params: Params, images: jax.Array) -> jax.Array:
    """f32[B,10]. The hidden layer is trainable; if it records, it is frozen."""
    module = Features(form.blocks, form.use_bias, form.record)
    x = module.apply({"params": params["features"]}, images, form.masked)
    if "hidden" in form.record:
        p = params["hidden"]
        layer = BoundedDense(layer=p["kernel"], bias=p["bias"], upper=UPPER)
        return dense(layer.apply({}, x).materialize(), params["logits"])
    return dense(jax.nn.relu6(dense(x, params["hidden"])), params["logits"])


def names(blocks: tuple[Block, ...]) -> list[str]:
    """The convolutions that can record, in order."""
    every = range(1, len(blocks) + 1)
    return [f"block{i}/{layer}" for i in every for layer in ("expand", "depthwise")]


class Pair(NamedTuple):
    """A convolution that can record and the one that reads it: its input, both parameters and
    strides, the second one's activation, and the first one's result (a ReLU6).
    """

    x: jax.Array
    params: tuple[Params, Params]
    strides: tuple[int, int]
    activation: str | None
    result: jax.Array


def pairs(form: Form, params: Params, images: jax.Array) -> dict[str, Pair]:
    """Every convolution that can record, by its name, with what it computes for these images."""
    module, given = Features(form.blocks, form.use_bias), {"params": params["features"]}
    options = {"capture_intermediates": True, "mutable": ["intermediates"]}
    _, kept = module.apply(given, images, form.masked, **options)
    results, found = kept["intermediates"], {}
    x = results["stem"]["__call__"][-1]
    for i, (_, _, stride) in enumerate(form.blocks, 1):
        name = f"block{i}"
        p, layers = params["features"][name], results[name]
        # flax's own Conv is called within: the layer's result comes after it.
        wide, deep = (layers[layer]["__call__"][-1] for layer in ("expand", "depthwise"))
        first, second = (p["expand"], p["depthwise"]), (p["depthwise"], p["project"])
        found[f"{name}/expand"] = Pair(x, first, (1, stride), "relu6", wide)
        found[f"{name}/depthwise"] = Pair(wide, second, (stride, 1), None, deep)
        x = layers["__call__"][-1]
    return found


def through(pair: Pair, record: bool, x: jax.Array) -> jax.Array:
    """What the second convolution of a pair returns for x, by way of a recorder or not."""
    given: dict[str, Any] = {}
    if record:
        x, given["recorder"] = _conv(pair, 0, x, activation="relu6", record=True)
    else:
        x = _conv(pair, 0, x, activation="relu6")
    return _conv(pair, 1, x, activation=pair.activation, **given)


def _conv(pair: Pair, which: int, x: jax.Array, **options: Any) -> Any:
    p, stride = pair.params[which], pair.strides[which]
    options |= {"strides": stride, "bias": p.get("bias")}
    options["groups"] = x.shape[-1] // p["kernel"].shape[2]
    index = js.tile_index(jnp.ones((x.shape[0], x.shape[1] // stride, x.shape[2] // stride), bool))
    return js.masked_conv(x, p["kernel"], index, **options)
