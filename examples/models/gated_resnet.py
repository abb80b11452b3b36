"""Residual networks whose blocks compute where a small head of theirs says so, as in DynConv.

A block's mask holds for its result. The 3x3 convolution reads the pixels around it, so what comes
before that one is computed at the dilated mask; outside of the mask a block is its shortcut.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js
from models.gated import Noise, straight_through
from models.resnet20 import fake_quantised

FORMS = ("dense", "multiplied", "sparse")
Params = dict[str, Any]


class Config(NamedTuple):
    """Groups are (blocks, width, stride of the first); `bottleneck`: 1x1, 3x3 and a 1x1 of four
    times the width, else two of 3x3. The stem has a `window` and a `stride`, then pooling if
    `pool`.
    """

    name: str
    side: int
    groups: tuple[tuple[int, int, int], ...]
    bottleneck: bool
    window: int
    pool: bool
    classes: int
    stride: int = 2

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """(width, stride) of each block."""
        return [(w, s if i == 0 else 1) for n, w, s in self.groups for i in range(n)]

    def sizes(self, side: int) -> list[int]:
        """The side of each block's result."""
        found, now = [], side // (2 * self.stride if self.pool else self.stride)
        for _, stride in self.blocks:
            now = -(-now // stride)
            found.append(now)
        return found


def resnet(depth: int, side: int = 224) -> Config:
    """ResNet-50 or -101 for images of 224x224; ResNet-20 for canvases of 128x128: a stem at stride
    4 leaves the 32x32 pixels that it was designed for.
    """
    if depth == 20:
        groups = ((3, 16, 1), (3, 32, 2), (3, 64, 2))
        return Config("ResNet-20", side, groups, False, 5, False, 10, 4)
    third = {50: 6, 101: 23}[depth]
    groups = ((3, 64, 1), (4, 128, 2), (third, 256, 2), (3, 512, 2))
    return Config(f"ResNet-{depth}", side, groups, True, 7, True, 1000)


def initial(config: Config, seed: int = 0) -> Params:
    """Random parameters; batch normalisation is folded, which leaves a bias."""
    rng = np.random.default_rng(seed)

    def conv(window: int, inputs: int, outputs: int, gain: float = 2.0) -> Params:
        scale = (gain / (window * window * inputs)) ** 0.5
        kernel = scale * rng.standard_normal((window, window, inputs, outputs))
        return {"w": jnp.asarray(kernel, jnp.float32), "b": jnp.zeros(outputs)}

    channels = config.groups[0][1]
    params: Params = {"stem": conv(config.window, 3, channels), "blocks": []}
    for width, stride in config.blocks:
        outputs = 4 * width if config.bottleneck else width
        shapes = [(3, channels, width), (3, width, width)]
        if config.bottleneck:
            shapes = [(1, channels, width), (3, width, width), (1, width, outputs)]
        gains = [2.0] * (len(shapes) - 1) + [0.1]
        block: Params = {
            "convs": [conv(*shape, gain) for shape, gain in zip(shapes, gains, strict=True)],
            # At first a pixel is open: networks are trained dense before their gates are.
            "gate": {"w": jnp.zeros((channels, 3)), "b": jnp.float32(1.0)},
        }
        if stride > 1 or channels != outputs:
            block["shortcut"] = conv(1, channels, outputs, 1.0)
        params["blocks"].append(block)
        channels = outputs
    params["logits"] = {"w": conv(1, channels, config.classes, 1.0)["w"][0, 0]}
    params["logits"]["b"] = jnp.zeros(config.classes)
    return params


class Gated(NamedTuple):
    """Logits [B,classes]; of each block the open pixels bool[B,H,W], and how sure its gate is."""

    logits: jax.Array
    masks: list[jax.Array]
    softs: list[jax.Array]


def gate(p: Params, x: jax.Array, stride: int, noise: Noise | None) -> tuple[jax.Array, jax.Array]:
    """[B,H,W,C] -> (which pixels of the result are open bool[B,H/s,W/s], how sure f32): from a
    pixel's features, those around it, and the mean of the image.
    """
    wide = jnp.einsum("bhwc,cn->nbhw", x, p["w"].astype(x.dtype)).astype(jnp.float32)
    around = lax.reduce_window(wide[1], 0.0, lax.add, (1, 5, 5), (1, 1, 1), "SAME") / 25
    logits = wide[0] + around + wide[2].mean((1, 2), keepdims=True) + p["b"].astype(jnp.float32)
    logits = logits[:, ::stride, ::stride]
    if noise is not None:
        logits = logits + noise.scale * jax.random.logistic(noise.key, logits.shape)
    # Once: XLA would compute it anew for every channel that it multiplies.
    is_open, soft = lax.optimization_barrier((logits > 0, jax.nn.sigmoid(logits)))
    return is_open, soft


def xla_conv(p: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """A convolution through XLA, with its bias."""
    dims = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=dims)
    return y + p["b"]


def strides_of(block: Params, stride: int) -> list[int]:
    """A block's stride is that of its first 3x3 convolution."""
    first = next(i for i, p in enumerate(block["convs"]) if p["w"].shape[0] == 3)
    return [stride if i == first else 1 for i in range(len(block["convs"]))]


def read_of(block: Params, i: int, x: jax.Array, bits: int | None) -> jax.Array:
    """What convolution `i` of a block reads: x, rounded to `bits` unless that is None."""
    return x if bits is None else fake_quantised.activations(x, block["ranges"][i], bits)


def branch(block: Params, x: jax.Array, stride: int, bits: int | None = None) -> jax.Array:
    """The convolutions of a block at every pixel; a ReLU follows all but the last."""
    *early, last = zip(block["convs"], strides_of(block, stride), strict=True)
    for i, (p, s) in enumerate(early, 1):
        x = read_of(block, i, jax.nn.relu(xla_conv(p, x, s)), bits)
    return xla_conv(last[0], x, last[1])


def indices_of(block: Params, mask: jax.Array, stride: int) -> list[js.TileIndex]:
    """Where each convolution of a block is computed: one index for each mask."""
    index = js.tile_index(mask)
    found, pairs = [index], list(zip(block["convs"], strides_of(block, stride), strict=True))
    for p, s in reversed(pairs[1:]):
        if p["w"].shape[0] > 1:
            mask = js.mask.needed(mask, p["w"].shape[0], s)
            index = js.tile_index(mask)
        found.insert(0, index)
    return found


def sparse_block(
    block: Params,
    x: jax.Array,
    shortcut: jax.Array,
    mask: jax.Array,
    stride: int,
    bits: int | None = None,
) -> jax.Array:
    """relu(shortcut + branch) where the mask holds, relu(shortcut) elsewhere."""
    indices, strides = indices_of(block, mask, stride), strides_of(block, stride)
    *early, last = zip(block["convs"], indices, strides, strict=True)
    for i, (p, index, s) in enumerate(early, 1):
        y = js.masked_conv(x, p["w"], index, strides=s, bias=p["b"], activation="relu")
        x = read_of(block, i, y, bits)
    p, index, s = last
    base = jax.nn.relu(shortcut)
    static = {"strides": s, "activation": "relu"}
    return js.masked_conv(x, p["w"], index, bias=p["b"], residual=shortcut, base=base, **static)


def run(
    config: Config,
    form: str,
    params: Params,
    images: jax.Array,
    given: list[jax.Array] | None = None,
    noise: Noise | None = None,
    bits: int | None = None,
) -> Gated:
    """The network.

    Args:
        config: its sizes.
        form: "dense" (every block at every pixel, without gates), "multiplied" (dense, times the
            masks) or "sparse".
        params: of `initial`.
        images: [B,H,W,3].
        given: masks bool[B,H,W] of the blocks' results that take the place of the gates' own; the
            gates are computed all the same.
        noise: samples the gates, for training, which takes "multiplied".
        bits: of the values that the blocks read (fake quantisation); None: not rounded. With
            `bits` the parameters must be rounded and have ranges.
    """
    masks, softs = [], []
    x = jax.nn.relu(xla_conv(params["stem"], images, config.stride))
    if config.pool:
        x = pooled(x)
    for i, (block, (_, stride)) in enumerate(zip(params["blocks"], config.blocks, strict=True)):
        read = read_of(block, 0, x, bits)
        shortcut = xla_conv(block["shortcut"], read, stride) if "shortcut" in block else x
        if form == "dense":
            x = jax.nn.relu(shortcut + branch(block, read, stride, bits))
            continue
        own = noise and Noise(jax.random.fold_in(noise.key, i), noise.scale)
        mask, soft = gate(block["gate"], read, stride, own)
        if given is not None:  # a probability is never below 0, which XLA does not know
            mask = given[i] & (soft >= 0)
        if form == "sparse":
            x = sparse_block(block, read, shortcut, mask, stride, bits)
        else:
            factor = mask.astype(x.dtype) if noise is None else straight_through(mask, soft)
            x = jax.nn.relu(shortcut + branch(block, read, stride, bits) * factor[..., None])
        masks.append(mask)
        softs.append(soft)
    head = params["logits"]
    return Gated(x.mean((1, 2)) @ head["w"] + head["b"], masks, softs)


def pooled(x: jax.Array) -> jax.Array:
    """The greatest of windows of 3x3 at stride 2, "SAME": of shifted images, which on a CPU takes a
    small part of the time of `lax.reduce_window`. x is not negative, and its sides are even.

    Raises:
        ValueError: for an odd side.
    """
    for axis in (1, 2):
        size = x.shape[axis]
        if size % 2:
            raise ValueError(f"x has shape {x.shape}; a side of {size} is odd")
        pads = [(0, 0)] * 4
        pads[axis] = (0, 1)
        padded = jnp.pad(x, pads)
        parts = [lax.slice_in_dim(padded, i, i + size - 1, 2, axis) for i in range(3)]
        x = jnp.maximum(jnp.maximum(*parts[:2]), parts[2])
    return x


def drawn_masks(config: Config, batch: int, density: float, seed: int = 0) -> list[np.ndarray]:
    """Masks of each block with this share of open pixels: smooth regions, alike from block to
    block, as learned ones are.
    """
    rng = np.random.default_rng(seed)
    common, found = rng.standard_normal((batch, 8, 8)), []
    for side in config.sizes(config.side):
        field = common + 0.5 * rng.standard_normal(common.shape)
        at = (np.arange(side) + 0.5) / side * 7
        low = np.minimum(at.astype(int), 6)
        part = at - low
        for axis in (1, 2):
            shape = [1, 1, 1]
            shape[axis] = -1
            weight = part.reshape(shape)
            field = field.take(low, axis) * (1 - weight) + field.take(low + 1, axis) * weight
        order = np.argsort(-field, None)
        mask = np.zeros(field.size, bool)
        mask[order[: max(1, round(density * field.size))]] = True
        found.append(mask.reshape(field.shape))
    return found
