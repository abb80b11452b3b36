"""The networks: random weights from a seed, pruned by magnitude, batch normalisation folded.

Where JAXSPARSE_DATA names a folder with patterns of the Deep Learning Matrix Collection
(`dlmc/rn50_magnitude_0.9.npz`), ResNet-50's layers keep the weights that those keep.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import jaxsparse as js
from models.pruned.graph import Graph, Layer, Node

#: Blocks, width and first stride of ResNet-50's groups.
GROUPS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
#: Outputs and stride of MobileNetV1's 13 pairs of a depthwise and a 1x1 convolution.
PAIRS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
EPSILON = 1e-5
#: Convolutions of VGG19 between its poolings: how many, and how wide.
VGG = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))


def dlmc(sparsity: float) -> tuple[Mapping[str, np.ndarray], Path | None]:
    """The collection's patterns of ResNet-50, and their file; none where there is no such file."""
    folder = os.environ.get("JAXSPARSE_DATA")
    file = Path(folder, "dlmc", f"rn50_magnitude_{sparsity:g}.npz") if folder else None
    return (np.load(file), file) if file is not None and file.is_file() else ({}, None)


def folded(
    kernel: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(kernel, bias) of a convolution with the batch normalisation behind it."""
    factor = scale / np.sqrt(variance + EPSILON)
    return kernel * factor, shift - mean * factor


class Builder:
    """Adds operators one by one; a method returns the name of its result.

    Args:
        name: of the network.
        sparsity: share of a kernel's weights that is pruned.
        inputs: shapes of one sample, by name.
        patterns: CSR patterns of kernels [outputs, inputs], as in the collection.
    """

    def __init__(
        self,
        name: str,
        sparsity: float,
        inputs: dict[str, tuple[int, ...]],
        patterns: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.name, self.sparsity, self.inputs = name, sparsity, inputs
        self.patterns = {} if patterns is None else patterns
        self.nodes: list[Node] = []
        self.layers: dict[str, Layer] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.shapes = dict(inputs)
        self.rng = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, shape: tuple[int, ...], **static: Any) -> str:
        """An operator with a result of `shape`, without the batch."""
        output = static.pop("output", None) or f"{op}_{len(self.nodes)}"
        self.nodes.append(Node(op, inputs, output, static))
        self.shapes[output] = shape
        return output

    def conv(
        self,
        x: str,
        outputs: int,
        window: int = 1,
        stride: int = 1,
        activation: str | None = "relu",
        name: str | None = None,
        groups: int = 1,
        gain: float = 2.0,
    ) -> str:
        """A convolution and its batch normalisation, folded; `gain`: the result's mean square over
        the input's.
        """
        height, width, channels = self.shapes[x]
        kernel = self.drawn((window, window, channels // groups, outputs), name, groups == 1, gain)
        scale, shift, mean = (
            centre + 0.1 * self.rng.standard_normal(outputs, np.float32) for centre in (1, 0, 0)
        )
        variance = self.rng.uniform(0.8, 1.2, outputs).astype(np.float32)
        kernel, bias = folded(kernel, scale, shift, mean, variance)
        pad = (window - 1) // 2
        size = ((height - 1) // stride + 1, (width - 1) // stride + 1)
        static = {"stride": stride, "padding": ((pad, pad), (pad, pad)), "groups": groups}
        static |= {"activation": activation, "output": name}
        output = self.node("conv", x, shape=(*size, outputs), **static)
        self.layers[output] = Layer(kernel, bias)
        return output

    def matmul(
        self, x: str, outputs: int, activation: str | None = None, name: str | None = None
    ) -> str:
        """A dense layer over the last axis."""
        *rest, inputs = self.shapes[x]
        kernel = self.drawn((inputs, outputs), name, True, 2.0 if activation else 1.0)
        bias = 0.1 * self.rng.standard_normal(outputs, np.float32)
        shape, static = (*rest, outputs), {"activation": activation, "output": name}
        output = self.node("matmul", x, shape=shape, **static)
        self.layers[output] = Layer(kernel, bias)
        return output

    def drawn(
        self, shape: tuple[int, ...], name: str | None, pruned: bool, gain: float
    ) -> np.ndarray:
        """A kernel of `shape` with zeros for what is pruned."""
        kernel = self.rng.standard_normal(shape, np.float32)
        if pruned and f"{name}/indptr" in self.patterns:
            kernel *= self.kept_by(str(name), shape)
        elif pruned:
            kernel *= js.prune.magnitude(kernel, self.sparsity)
        power = float(np.square(kernel).sum()) / shape[-1]
        return kernel * np.float32((gain / power) ** 0.5)

    def kept_by(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """bool of `shape`, from the pattern of that name. The collection's rows are outputs; its
        columns are taken in the order of the kernel's axes.
        """
        indptr, indices = (self.patterns[f"{name}/{part}"] for part in ("indptr", "indices"))
        outputs, inputs = self.patterns[f"{name}/shape"]
        if (inputs, outputs) != (int(np.prod(shape[:-1])), shape[-1]):
            raise ValueError(f"the pattern of {name} is {outputs}x{inputs}; its kernel is {shape}")
        kept = np.zeros((outputs, inputs), bool)
        kept[np.repeat(np.arange(outputs), np.diff(indptr)), indices] = True
        return kept.T.reshape(shape)

    def pool(self, x: str, window: int, stride: int, pad: int) -> str:
        """The greatest of each window."""
        height, width, channels = self.shapes[x]
        size = ((n + 2 * pad - window) // stride + 1 for n in (height, width))
        static = {"window": window, "stride": stride, "padding": ((pad, pad), (pad, pad))}
        return self.node("max_pool", x, shape=(*size, channels), **static)

    def add(self, a: str, b: str, activation: str | None = None) -> str:
        """a + b."""
        return self.node("add", a, b, shape=self.shapes[a], activation=activation)

    def concat(self, *xs: str) -> str:
        """Channels one after the other."""
        channels = sum(self.shapes[x][-1] for x in xs)
        return self.node("concat", *xs, shape=(*self.shapes[xs[0]][:-1], channels))

    def halves(self, x: str) -> tuple[str, str]:
        """The channels in two."""
        *rest, channels = self.shapes[x]
        half = channels // 2
        ends = ((0, half), (half, channels))
        first, second = (
            self.node("slice", x, shape=(*rest, half), start=a, stop=b) for a, b in ends
        )
        return first, second

    def mean(self, x: str) -> str:
        """Over the pixels."""
        return self.node("mean", x, shape=self.shapes[x][-1:])

    def norm(self, x: str) -> str:
        """Layer normalisation."""
        width, names = self.shapes[x][-1], [f"{p}_{len(self.nodes)}" for p in ("scale", "shift")]
        for name, centre in zip(names, (1, 0), strict=True):
            self.constants[name] = centre + 0.1 * self.rng.standard_normal(width, np.float32)
        return self.node("norm", x, *names, shape=self.shapes[x])

    def done(self, *outputs: str) -> Graph:
        """The graph with these results."""
        nodes = tuple(self.nodes)
        return Graph(self.name, nodes, self.layers, self.constants, self.inputs, outputs)


def resnet50(sparsity: float, side: int = 224, groups: tuple[Any, ...] = GROUPS) -> Graph:
    """ResNet-50; layers have the names that they have in the collection."""
    made = Builder("ResNet-50", sparsity, {"x": (side, side, 3)}, dlmc(sparsity)[0])
    x = made.pool(made.conv("x", 64, 7, 2, name="initial_conv"), 3, 2, 1)
    for group, (count, width, first) in enumerate(groups, 1):
        for i in range(count):
            stride = first if i == 0 else 1
            tail = f"block_group{group}_{i}_1"
            if i == 0:
                tail = f"block_group_projection_block_group{group}"
            shortcut = x
            if i == 0:
                name = f"bottleneck_projection_{tail}"
                shortcut = made.conv(x, 4 * width, 1, stride, None, name, gain=1.0)
            y = made.conv(x, width, name=f"bottleneck_1_{tail}")
            y = made.conv(y, width, 3, stride, name=f"bottleneck_2_{tail}")
            y = made.conv(y, 4 * width, 1, 1, None, f"bottleneck_3_{tail}", gain=0.2)
            x = made.add(shortcut, y, "relu")
    named = "final_dense" if made.shapes[x][-1] == 2048 else None
    return made.done(made.matmul(made.mean(x), 1000, name=named))


def mobilenet(sparsity: float, side: int = 224, pairs: tuple[Any, ...] = PAIRS) -> Graph:
    """MobileNetV1; the depthwise kernels, nine weights for each channel, keep all of them."""
    made = Builder("MobileNetV1", sparsity, {"x": (side, side, 3)})
    x = made.conv("x", 32, 3, 2)
    for outputs, stride in pairs:
        channels = made.shapes[x][-1]
        x = made.conv(x, channels, 3, stride, groups=channels)
        x = made.conv(x, outputs)
    return made.done(made.matmul(made.mean(x), 1000))


def vgg19(
    sparsity: float, side: int = 224, blocks: tuple[Any, ...] = VGG, width: int = 4096
) -> Graph:
    """VGG19, with its three dense layers."""
    made = Builder("VGG19", sparsity, {"x": (side, side, 3)})
    x = "x"
    for count, channels in blocks:
        for _ in range(count):
            x = made.conv(x, channels, 3)
        x = made.pool(x, 2, 2, 0)
    x = made.node("flatten", x, shape=(int(np.prod(made.shapes[x])),), image=made.shapes[x])
    for outputs, activation in ((width, "relu"), (width, "relu"), (1000, None)):
        x = made.matmul(x, outputs, activation)
    return made.done(x)


def yolov8n(sparsity: float, side: int = 640, classes: int = 80) -> Graph:
    """YOLOv8n: results are the maps of boxes and classes at three resolutions, before decoding."""
    made = Builder("YOLOv8n", sparsity, {"x": (side, side, 3)})

    def conv(x: str, outputs: int, window: int = 3, stride: int = 1) -> str:
        return made.conv(x, outputs, window, stride, "silu", gain=2.4)

    def stage(x: str, outputs: int, count: int, shortcut: bool) -> str:
        parts = list(made.halves(conv(x, outputs, 1)))
        for _ in range(count):
            y = conv(conv(parts[-1], outputs // 2), outputs // 2)
            parts.append(made.add(parts[-1], y) if shortcut else y)
        return conv(made.concat(*parts), outputs, 1)

    def enlarged(x: str) -> str:
        height, width, channels = made.shapes[x]
        return made.node("enlarge", x, shape=(2 * height, 2 * width, channels))

    x = stage(conv(conv("x", 16, 3, 2), 32, 3, 2), 32, 1, True)
    third = stage(conv(x, 64, 3, 2), 64, 2, True)
    fourth = stage(conv(third, 128, 3, 2), 128, 2, True)
    x = stage(conv(fourth, 256, 3, 2), 256, 1, True)
    pools = [conv(x, 128, 1)]
    for _ in range(3):
        pools.append(made.pool(pools[-1], 5, 1, 2))
    fifth = conv(made.concat(*pools), 256, 1)
    fourth = stage(made.concat(enlarged(fifth), fourth), 128, 1, False)
    third = stage(made.concat(enlarged(fourth), third), 64, 1, False)
    fourth = stage(made.concat(conv(third, 64, 3, 2), fourth), 128, 1, False)
    fifth = stage(made.concat(conv(fourth, 128, 3, 2), fifth), 256, 1, False)
    found = []
    for x in (third, fourth, fifth):
        for hidden, outputs in ((64, 64), (max(64, min(classes, 100)), classes)):
            y = conv(conv(x, hidden), hidden)
            found.append(made.conv(y, outputs, 1, 1, None, gain=1.0))
    return made.done(*found)


def transformer(
    sparsity: float, tokens: int = 128, width: int = 512, layers: int = 6, cached: int = 0
) -> Graph:
    """Transformer layers as of the base model (8 heads of 64, ReLU). `cached`: keys and values of
    earlier tokens are inputs, as when one token is decoded.
    """
    inputs = {"x": (tokens, width)}
    names = [(f"keys_{i}", f"values_{i}") for i in range(layers)] if cached else []
    inputs |= {name: (cached, width) for pair in names for name in pair}
    kind = f"decoder after {cached}" if cached else f"encoder, {tokens}"
    made = Builder(f"{kind} tokens", sparsity, inputs)
    x = "x"
    for i in range(layers):
        y = made.norm(x)
        parts = [made.matmul(y, width) for _ in range(3)]
        cache = names[i] if cached else ()
        y = made.node("attention", *parts, *cache, shape=made.shapes[x], heads=width // 64)
        x = made.add(x, made.matmul(y, width))
        y = made.matmul(made.norm(x), 4 * width, "relu")
        x = made.add(x, made.matmul(y, width))
    return made.done(made.norm(x))


def networks(sparsity: float, quick: bool, wide: bool) -> dict[str, Callable[[], Graph]]:
    """How each network is made, by a short name: small ones, or those of the papers; `wide`: a
    decoder of layers 4,096 wide, in place of 512.
    """
    if quick:
        return {
            "resnet50": lambda: resnet50(sparsity, 64, ((1, 64, 1), (1, 128, 2))),
            "mobilenet": lambda: mobilenet(sparsity, 64, PAIRS[:5]),
            "vgg19": lambda: vgg19(sparsity, 32, ((1, 64), (1, 128)), 256),
            "yolov8n": lambda: yolov8n(sparsity, 64),
            "encoder": lambda: transformer(sparsity, 32, 128, 1),
            "decoder": lambda: transformer(sparsity, 1, 128, 1, 32),
        }
    width, layers = (4096, 2) if wide else (512, 6)
    return {
        "resnet50": lambda: resnet50(sparsity),
        "mobilenet": lambda: mobilenet(sparsity),
        "vgg19": lambda: vgg19(sparsity),
        "yolov8n": lambda: yolov8n(sparsity),
        "encoder": lambda: transformer(sparsity),
        "decoder": lambda: transformer(sparsity, 1, width, layers, 128),
    }
