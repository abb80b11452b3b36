"""Layers with frozen, pruned weights by name, with the tags of `cases`: "cpu", "gpu", "quick"."""

import dataclasses
import math
from collections.abc import Iterable
from typing import TypeVar

import numpy as np


@dataclasses.dataclass(frozen=True)
class PrunedMatmulCase:
    """x[rows, inputs] by a pruned weight[inputs, outputs]."""

    name: str
    rows: int
    inputs: int
    outputs: int
    tags: frozenset[str] = frozenset()

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Of an input."""
        return self.rows, self.inputs

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Of the weight."""
        return self.inputs, self.outputs


@dataclasses.dataclass(frozen=True)
class PrunedConvCase:
    """x[batch, size, size, channels] under a pruned kernel[window, window, channels, outputs],
    padding "SAME".
    """

    name: str
    batch: int
    size: int
    channels: int
    outputs: int
    window: int
    stride: int = 1
    tags: frozenset[str] = frozenset()

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Of an input."""
        return self.batch, self.size, self.size, self.channels

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Of the kernel."""
        return self.window, self.window, self.channels, self.outputs


PrunedCase = PrunedMatmulCase | PrunedConvCase
Named = TypeVar("Named", PrunedMatmulCase, PrunedConvCase)


def pruned_weight(case: PrunedCase, sparsity: float, seed: int = 0) -> np.ndarray:
    """float32 of the case's weight shape, normal, of which exactly round(sparsity * size) randomly
    placed values are zero; scaled so that a sum over all kept inputs has variance one.
    """
    rng = np.random.default_rng(seed)
    shape = case.weight_shape
    weight = rng.standard_normal(math.prod(shape), np.float32)
    weight[rng.permutation(weight.size)[: round(sparsity * weight.size)]] = 0
    terms = max((1 - sparsity) * math.prod(shape[:-1]), 1.0)
    return (weight / np.float32(math.sqrt(terms))).reshape(shape)


def _matmul(tag: str, rows: int, inputs: int, outputs: int) -> PrunedMatmulCase:
    return PrunedMatmulCase(f"{rows}x{inputs}x{outputs}", rows, inputs, outputs, frozenset([tag]))


def _conv(
    tag: str, batch: int, size: int, channels: int, outputs: int, window: int, stride: int = 1
) -> PrunedConvCase:
    name = f"b{batch}_{size}x{size}x{channels}_{window}x{window}_{outputs}"
    name += f"_s{stride}" if stride > 1 else ""
    return PrunedConvCase(name, batch, size, channels, outputs, window, stride, frozenset([tag]))


def _by_name(found: Iterable[Named]) -> dict[str, Named]:
    return {one.name: one for one in found}


#: Name -> case of `pruned_matmul`.
PRUNED_MATMUL_CASES = _by_name(
    (
        *(_matmul("cpu", rows, 256, 1024) for rows in (1, 196)),
        _matmul("cpu", 784, 512, 128),
        *(_matmul("gpu", rows, 2048, 512) for rows in (1, 8, 64)),
        *(_matmul("gpu", rows, 4096, 4096) for rows in (1, 16)),
        _matmul("gpu", 2048, 512, 2048),
        _matmul("quick", 5, 24, 40),
    )
)

#: Name -> case of `pruned_conv`.
PRUNED_CONV_CASES = _by_name(
    (
        *(_conv("cpu", 1, *sizes) for sizes in ((28, 128, 128, 3), (14, 256, 256, 3))),
        *(_conv("cpu", 1, *sizes) for sizes in ((14, 256, 1024, 1), (28, 128, 128, 3, 2))),
        *(_conv("gpu", batch, 28, 128, 128, 3) for batch in (1, 32)),
        *(_conv("gpu", batch, 14, 256, 256, 3) for batch in (1, 32)),
        _conv("quick", 2, 7, 5, 6, 3),
    )
)
