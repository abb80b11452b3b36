"""A residual network of fifteen 3x3 convolutions on a photograph, in three forms."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsparse as js
from jaxsparse.mask import propagate

WIDE, DEEP, BLOCKS = 32, 64, 5
TILE = (8, 8)  # an edit is a region: blocks of pixels hold it nearly as well as pixels do
HEAD = 16  # four pixels of three colours, and channels to spare: sixteen are what tensor cores take


class Layer(NamedTuple):
    """One 3x3 convolution; layers of equal `stage` have one resolution, and share one index. One
    that `closes` a block adds the block's input before its activation.
    """

    name: str
    stage: int
    channels: int
    outputs: int
    stride: int
    activation: str | None
    closes: bool = False


def layers() -> list[Layer]:
    """Stem and a block at full resolution; down; five blocks at half resolution; head."""
    table = [
        Layer("stem", 0, 3, WIDE, 1, "relu"),
        Layer("block 1", 0, WIDE, WIDE, 1, "relu"),
        Layer("block 1", 0, WIDE, WIDE, 1, "relu", closes=True),
        Layer("down", 1, WIDE, DEEP, 2, "relu"),
    ]
    for _ in range(BLOCKS):
        table.append(Layer(f"blocks 2-{BLOCKS + 1}", 1, DEEP, DEEP, 1, "relu"))
        table.append(Layer(f"blocks 2-{BLOCKS + 1}", 1, DEEP, DEEP, 1, "relu", closes=True))
    return [*table, Layer("head", 1, DEEP, HEAD, 1, None)]


LAYERS = layers()
Params = list[tuple[jax.Array, jax.Array]]


def make_params(seed: int = 0) -> Params:
    """Fixed random weights: (kernel f32[3,3,C,O], bias f32[O]) of each layer."""
    rng = np.random.default_rng(seed)
    params = []
    for layer in LAYERS:
        quiet = layer.closes or layer.activation is None
        spread = np.sqrt((0.2 if quiet else 2.0) / (9 * layer.channels))
        kernel = rng.standard_normal((3, 3, layer.channels, layer.outputs)) * spread
        bias = rng.standard_normal(layer.outputs) * 0.05
        if layer.name == "head":  # the four pixels that one pixel becomes get one colour
            fill = HEAD - 12
            kernel = np.pad(np.tile(kernel[..., :3], 4), [(0, 0)] * 3 + [(0, fill)])
            bias = np.pad(np.tile(bias[:3], 4), (0, fill))
        params.append((jnp.asarray(kernel, jnp.float32), jnp.asarray(bias, jnp.float32)))
    return params


def network(
    photo: jax.Array, conv: Callable[[int, jax.Array, jax.Array | None], jax.Array]
) -> jax.Array:
    """The filtered photo f32[1,H,W,3]; `conv(i, x, skip)` is layer i, which adds `skip` where it
    closes a block.
    """
    return add_detail(photo, evaluate(LAYERS, photo, conv))


def evaluate(
    layers: Sequence[Layer],
    x: jax.Array,
    conv: Callable[[int, jax.Array, jax.Array | None], jax.Array],
) -> jax.Array:
    """The last layer's result; `conv(i, x, skip)` is layer i, as in `network`."""
    x = skip = conv(0, x, None)
    for i, layer in enumerate(layers[1:], 1):
        x = conv(i, x, skip if layer.closes else None)
        skip = x if layer.closes or layer.stride > 1 else skip
    return x


def add_detail(photo: jax.Array, x: jax.Array) -> jax.Array:
    """The photo and what the head says of it: four pixels of three colours each."""
    detail = x[..., :12]
    b, h, w, _ = detail.shape
    detail = detail.reshape(b, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    return photo + detail.reshape(b, 2 * h, 2 * w, 3)


def dense_conv(
    layer: Layer,
    kernel: jax.Array,
    bias: jax.Array,
    x: jax.Array,
    skip: jax.Array | None = None,
) -> jax.Array:
    """The layer through XLA's convolution."""
    strides = (layer.stride, layer.stride)
    names = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=names)
    y = y + bias.astype(y.dtype)
    y = y if skip is None else y + skip
    return jax.nn.relu(y) if layer.activation == "relu" else y


def multiplied_conv(
    layer: Layer,
    kernel: jax.Array,
    bias: jax.Array,
    x: jax.Array,
    mask: jax.Array,
    base: jax.Array,
    skip: jax.Array | None = None,
) -> jax.Array:
    """The layer everywhere, then kept where the mask holds."""
    return jnp.where(mask[..., None], dense_conv(layer, kernel, bias, x, skip), base)


def sparse_conv(
    layer: Layer,
    kernel: jax.Array,
    bias: jax.Array,
    x: jax.Array,
    index: js.TileIndex,
    base: jax.Array,
    skip: jax.Array | None = None,
) -> jax.Array:
    """The layer where the index's mask holds; elsewhere `base`, whose buffer it takes."""
    return js.masked_conv(
        x,
        kernel,
        index,
        strides=layer.stride,
        bias=bias,
        activation=layer.activation,
        base=base,
        residual=skip,
    )


def reached(edited: jax.Array) -> list[jax.Array]:
    """What an edit bool[1,H,W] can change in each layer's result: it grows with every layer."""
    masks = []
    for layer in LAYERS:
        edited = propagate(edited, 3, layer.stride)
        masks.append(edited)
    return masks


def stages() -> list[list[tuple[int, int]]]:
    """(window, stride) of the layers of each stage: those that share an index."""
    numbers = sorted({layer.stage for layer in LAYERS})
    return [[(3, layer.stride) for layer in LAYERS if layer.stage == n] for n in numbers]


def shared_masks(edited: jax.Array) -> list[jax.Array]:
    """The mask that each stage shares: its last layer's in `reached`, which holds those before it.

    Windows of 3x3, one after the other, are one large window.
    """
    masks = []
    for layers in stages():
        strides = [stride for _, stride in layers]
        if strides[0] > 1:  # a stage begins with what leads to its resolution
            edited = propagate(edited, 3, strides.pop(0))
        edited = propagate(edited, 1 + 2 * len(strides))
        masks.append(edited)
    return masks


def shared_indices(edited: jax.Array) -> tuple[js.TileIndex, ...]:
    """The indices of `shared_masks`, in one call."""
    return js.affected_index(edited, stages(), TILE)


def first_pass(params: Params, photo: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """The whole network, densely; also every layer's activations, for later edits."""
    cache: list[jax.Array] = []

    def conv(i: int, x: jax.Array, skip: jax.Array | None) -> jax.Array:
        cache.append(dense_conv(LAYERS[i], *params[i], x, skip))
        return cache[-1]

    return network(photo, conv), cache


def runs(layers: Sequence[Layer] = LAYERS) -> list[tuple[int, int]]:
    """(first, last + 1) of the layers that follow each other on one index with as many channels: a
    stack of blocks and what follows them, or a layer alone.
    """
    found: list[tuple[int, int]] = []
    for i, layer in enumerate(layers):
        first = layers[found[-1][0]] if found else layer
        if i and first.stride == 1 and first[1:3] == layer[1:3] and layer.stride == 1:
            found[-1] = (found[-1][0], i + 1)
        else:
            found.append((i, i + 1))
    return found


def sparse_pass(
    params: Params, photo: jax.Array, indices: Sequence[js.TileIndex], cache: list[jax.Array]
) -> tuple[jax.Array, list[jax.Array]]:
    """The network where the indices' masks hold, a stack of blocks at a time; elsewhere `cache`,
    whose buffers it takes.
    """
    updated = sparse_layers(LAYERS, params, photo, indices, cache)
    return add_detail(photo, updated[-1]), updated


def sparse_layers(
    layers: Sequence[Layer],
    params: Params,
    x: jax.Array,
    indices: Sequence[js.TileIndex],
    cache: Sequence[jax.Array],
) -> list[jax.Array]:
    """The results of all layers, as in `sparse_pass`; `indices` has one of each stage."""
    updated: list[jax.Array] = []
    for first, stop in runs(layers):
        run, index = layers[first:stop], indices[layers[first].stage]
        kernels, biases = zip(*params[first:stop], strict=True)
        if len(run) == 1:
            updated.append(sparse_conv(run[0], *params[first], x, index, cache[first]))
        else:  # a layer that closes a block adds the input of the layer before
            updated += js.masked_conv_stack(
                x,
                kernels,
                index,
                cache[first:stop],
                biases=biases,
                activations=[layer.activation for layer in run],
                residuals=[i - 2 if layer.closes else None for i, layer in enumerate(run)],
            )
        x = updated[-1]
    return updated


def edit_pass(
    state: tuple[Any, list[jax.Array]],
    params: Params,
    photo: jax.Array,
    edited: jax.Array,
    form: str,
) -> tuple[jax.Array, list[jax.Array]]:
    """The network on an edited photo, given the activations before the edit.

    Args:
        state: result of the pass before, (image, cache). Donate it, and the cache is updated
            in place; with `keep_unused=True` the image is, too, and no call finds a buffer
            elsewhere than the one before.
        params: of every layer.
        photo: f32[1,H,W,3], differs from the one before only where `edited` holds.
        edited: bool[1,H,W].
        form: "sparse" or "multiplied".

    Returns:
        (image, cache) of the edited photo.

    Raises:
        ValueError: another form.
    """
    if form not in ("sparse", "multiplied"):
        raise ValueError(f"form={form!r}: it is 'sparse' or 'multiplied'")
    _, cache = state
    if form == "sparse":
        return sparse_pass(params, photo, shared_indices(edited), cache)
    masks = shared_masks(edited)
    updated: list[jax.Array] = []

    def conv(i: int, x: jax.Array, skip: jax.Array | None) -> jax.Array:
        layer = LAYERS[i]
        updated.append(multiplied_conv(layer, *params[i], x, masks[layer.stage], cache[i], skip))
        return updated[-1]

    return network(photo, conv), updated
