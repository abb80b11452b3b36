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
    """A pruned convolution: `outputs` from `channels` x size x size, window, padding, stride."""

    name: str
    channels: int
    size: int
    outputs: int
    window: int
    padding: int
    stride: int
    sparsity: float


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
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape, np.float32) / np.float32(case.channels**0.5)
    return np.where(random_mask(shape, case.sparsity, 2), weight, 0).astype(np.float32), "random"


def layer_of(name: str, shape: tuple[int, int], sparsity: float) -> tuple[np.ndarray, str]:
    """float32[inputs, outputs] of a layer of the DLMC ResNet-50, and where its pattern is from."""
    rng, data = np.random.default_rng(1), folder()
    file = data / "dlmc" / f"rn50_magnitude_{sparsity:g}.npz" if data else None
    if file is None or not file.is_file():
        weight = rng.standard_normal(shape[::-1], np.float32) / np.float32(shape[1] ** 0.5)
        return np.where(random_mask(shape[::-1], sparsity, 2), weight, 0), "random"
    found = np.load(file)
    indices, indptr = found[f"{name}/indices"].astype(np.int32), found[f"{name}/indptr"]
    values = rng.standard_normal(len(indices), np.float32) / np.float32(shape[1] ** 0.5)
    csr = sp.csr_matrix((values, indices, indptr.astype(np.int32)), tuple(found[f"{name}/shape"]))
    return np.ascontiguousarray(csr.toarray().T), "real"
