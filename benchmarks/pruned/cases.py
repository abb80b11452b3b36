"""Problem cases of frozen weights, shared by their benchmarks: shapes, and weights that are real
where JAXSPARSE_DATA is set (a random pattern of the same sparsity elsewhere).
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp


@dataclasses.dataclass(frozen=True)
class ConvCase:
    """A pruned convolution: `outputs` from `channels` x size x size, window, padding, stride.
    `layer`: the one of the DLMC's ResNet-50 with its pattern, where there is one.
    """

    name: str
    channels: int
    size: int
    outputs: int
    window: int
    padding: int
    stride: int
    sparsity: float
    layer: str = ""


#: SparDR (Wang, Jiang, Zhang, Cao, Han), table II.
CONVS = (
    ConvCase("CV1", 179, 14, 179, 3, 1, 1, 0.827797),
    ConvCase("CV2", 179, 14, 716, 1, 0, 1, 0.831005),
    ConvCase("CV3", 179, 28, 179, 3, 1, 2, 0.827987),
    ConvCase("CV4", 2048, 7, 358, 1, 0, 1, 0.881186),
    ConvCase("CV5", 358, 28, 716, 1, 0, 2, 0.829097),
    ConvCase("CV6", 358, 7, 2048, 1, 0, 1, 0.881133),
    ConvCase("CV7", 44, 56, 44, 1, 0, 1, 0.871384),
    ConvCase("CV8", 716, 14, 2048, 1, 0, 2, 0.879547),
    ConvCase("CV9", 89, 28, 89, 3, 1, 1, 0.832793),
    ConvCase("CV10", 512, 14, 512, 3, 1, 1, 0.9),
    ConvCase("CV11", 192, 40, 192, 3, 1, 1, 0.890501),
    ConvCase("CV12", 288, 20, 288, 3, 1, 1, 0.878399),
    ConvCase("CV13", 96, 80, 96, 3, 1, 1, 0.928204),
)
#: Names of the DLMC's pruned ResNet-50, its (outputs, inputs), and positions at 224 x 224.
LAYERS = (
    ("bottleneck_1_block_group1_1_1", (64, 256), 3136),
    ("bottleneck_3_block_group1_1_1", (256, 64), 3136),
    ("bottleneck_1_block_group2_1_1", (128, 512), 784),
    ("bottleneck_3_block_group2_1_1", (512, 128), 784),
    ("bottleneck_1_block_group3_1_1", (256, 1024), 196),
    ("bottleneck_3_block_group3_1_1", (1024, 256), 196),
    ("bottleneck_1_block_group4_1_1", (512, 2048), 49),
    ("bottleneck_3_block_group4_1_1", (2048, 512), 49),
)


def resnet50(width: float, sparsity: float) -> tuple[ConvCase, ...]:
    """The 19 different layers of ResNet-50's bottlenecks at 224 x 224, `width` of its channels."""
    found: list[ConvCase] = []
    inputs, size = round(64 * width), 56
    for group in range(1, 5):
        middle, outputs = (round(n * 2 ** (group - 1) * width) for n in (64, 256))
        stride = 1 if group == 1 else 2
        first, last = "block_group_projection_block_group", f"block_group{group}_1_1"
        layers = [
            (inputs, middle, 1, stride, f"bottleneck_1_{first}{group}"),
            (middle, middle, 3, 1, f"bottleneck_2_{last}"),
            (middle, outputs, 1, 1, f"bottleneck_3_{last}"),
            (outputs, middle, 1, 1, f"bottleneck_1_{last}"),
            (inputs, outputs, 1, stride, f"bottleneck_projection_{first}{group}"),
        ]
        for place, (a, b, window, step, layer) in enumerate(layers):
            at = size if place in (0, 4) else size // stride
            name = f"{a}->{b} {window}x{window} on {at}x{at}" + ("" if step == 1 else " by 2")
            one = ConvCase(name, a, at, b, window, window // 2, step, sparsity, layer)
            if name not in [each.name for each in found]:
                found.append(one)
        inputs, size = outputs, size // stride
    return tuple(found)


def folder() -> Path | None:
    """Where the real patterns are."""
    found = os.environ.get("JAXSPARSE_DATA")
    return Path(found) if found else None


def random_mask(shape: tuple[int, ...], sparsity: float, seed: int) -> np.ndarray:
    """bool of `shape`, with exactly round(sparsity * size) pruned."""
    size = int(np.prod(shape))
    kept = np.ones(size, bool)
    rng = np.random.default_rng(seed)
    kept[rng.permutation(size)[: round(sparsity * size)]] = False
    return kept.reshape(shape)


def kernel_of(case: ConvCase) -> tuple[np.ndarray, str]:
    """float32[kh, kw, C, O], and where its pattern is from."""
    data = folder()
    if data is not None and (file := data / "pruned_conv" / f"{case.name}.npz").is_file():
        return np.load(file)["weight"].transpose(2, 3, 1, 0).copy(), "real"
    shape = (case.window, case.window, case.channels, case.outputs)
    if case.layer:
        matrix, source = layer_of(
            case.layer, (case.outputs, int(np.prod(shape[:3]))), case.sparsity
        )
        return matrix.reshape(shape), source
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape, np.float32) / np.float32(case.channels**0.5)
    return np.where(random_mask(shape, case.sparsity, 2), weight, 0).astype(np.float32), "random"


def layer_of(name: str, shape: tuple[int, int], sparsity: float) -> tuple[np.ndarray, str]:
    """float32[inputs, outputs] of a layer of the DLMC ResNet-50, and where its pattern is from:
    a random one of `shape` (outputs, inputs) where the data is absent, or of another width.
    """
    rng, data = np.random.default_rng(1), folder()
    file = data / "dlmc" / f"rn50_magnitude_{sparsity:g}.npz" if data else None
    found = np.load(file) if file is not None and file.is_file() else {}
    if tuple(found.get(f"{name}/shape", ())) != shape:
        weight = rng.standard_normal(shape[::-1], np.float32) / np.float32(shape[1] ** 0.5)
        return np.where(random_mask(shape[::-1], sparsity, 2), weight, 0), "random"
    indices, indptr = found[f"{name}/indices"].astype(np.int32), found[f"{name}/indptr"]
    values = rng.standard_normal(len(indices), np.float32) / np.float32(shape[1] ** 0.5)
    csr = sp.csr_matrix((values, indices, indptr.astype(np.int32)), shape)
    return np.ascontiguousarray(csr.toarray().T), "real"
