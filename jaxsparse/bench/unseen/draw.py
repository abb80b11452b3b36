"""Problems drawn from a seed. Equal seeds give equal problems, whatever the machine."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from jaxsparse.testing import ConvCase
from jaxsparse.testing.attention_cases import AttentionCase
from jaxsparse.testing.product_cases import GroupedCase, MatmulCase
from jaxsparse.testing.pruned_cases import PrunedConvCase, PrunedMatmulCase

Case = ConvCase | GroupedCase | MatmulCase | AttentionCase | PrunedMatmulCase | PrunedConvCase
#: The bands of density that geometric means are quoted for.
BANDS = (0.1, 0.3, 0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One problem.

    Attributes:
        op: of which op.
        number: its place in the draw.
        case: sizes.
        dtype: "bfloat16", or "float32" (TF32 on a GPU).
        mask: how the mask is made: a name of `jaxsparse.testing.MASKS` for a convolution.
        density: share of what is active: pixels, blocks, kept weights; 1 for grouped products.
    """

    op: str
    number: int
    case: Case
    dtype: str
    mask: str = ""
    density: float = 1.0

    def __str__(self) -> str:
        mask = f", {self.mask} {self.density:.2f}" if self.mask else ""
        return f"{self.op} {self.case.name} {self.dtype}{mask}"


@dataclasses.dataclass(frozen=True)
class Limits:
    """How large a problem may be: elements of the larger of input and result, and multiply-adds."""

    elements: float
    macs: float


GPU = Limits(2**27, 1e12)
CPU = Limits(2**22, 2e9)


def draw(op: str, seed: int, count: int, dtype: str, limits: Limits) -> list[Drawn]:
    """`count` problems of `op`.

    Raises:
        KeyError: for an op that is not one of OPS.
    """
    make = OPS[op]
    # Each problem has a generator of its own, so that a longer draw begins with the shorter one.
    return [make(np.random.default_rng([seed, n]), n, dtype, limits) for n in range(count)]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _density(rng: np.random.Generator) -> float:
    """Half of the draws at a density that goals are quoted for, half anywhere from .02 to 1."""
    return float(rng.choice(BANDS)) if rng.random() < 0.5 else float(rng.uniform(0.02, 1.0))


def _conv(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        batch, side = _log_uniform(rng, 1, 64), _log_uniform(rng, 7, 512)
        width = min(512, max(7, round(side * math.exp(rng.uniform(-0.5, 0.5)))))
        channels, outputs = (8 * int(rng.integers(1, 81)) for _ in range(2))
        window, stride = int(rng.choice([1, 3, 3, 3, 5, 7])), int(rng.choice([1, 1, 1, 2]))
        name = f"b{batch}_{side}x{width}_{channels}to{outputs}_{window}x{window}_s{stride}"
        case = ConvCase(
            name, batch, side, width, channels, outputs, (window, window), (stride, stride)
        )
        elements = max(math.prod(case.x_shape), math.prod(case.mask_shape) * outputs)
        if elements <= limits.elements and case.macs <= limits.macs:
            mask = str(rng.choice(["blobs", "fine_blobs", "edges", "rectangles", "random"]))
            return Drawn("masked_conv", number, case, dtype, mask, _density(rng))


def _grouped(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        tokens, experts = _log_uniform(rng, 1, 65536), _log_uniform(rng, 1, 256)
        depth, outputs = (64 * _log_uniform(rng, 1, 64) for _ in range(2))
        skew = str(rng.choice(["uniform", "zipf", "one"], p=[0.45, 0.45, 0.1]))
        name = f"t{tokens}_e{experts}_{depth}x{outputs}_{skew}"
        weights, rows = experts * depth * outputs, tokens * max(depth, outputs)
        macs = tokens * depth * outputs
        if max(weights / 8, rows) <= limits.elements and macs <= limits.macs:
            case = GroupedCase(name, tokens, experts, depth, outputs, skew=skew)
            return Drawn("grouped_matmul", number, case, dtype)


def _matmul(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        m, k, n = (8 * _log_uniform(rng, 8, 1024) for _ in range(3))
        block = tuple(int(rng.choice([1, 2, 8, 16, 32, 64, 128])) for _ in range(2))
        masked = str(rng.choice(["a", "b", "out"]))
        name = f"{m}x{k}x{n}_{masked}_{block[0]}x{block[1]}"
        if max(m * k, k * n, m * n) <= limits.elements and m * k * n <= limits.macs:
            case = MatmulCase(name, m, k, n, (block[0], block[1]), masked)
            return Drawn("masked_matmul", number, case, dtype, "blocks", _density(rng))


def _attention(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        batch, tokens = _log_uniform(rng, 1, 16), _log_uniform(rng, 64, 65536)
        keys = tokens if rng.random() < 0.7 else _log_uniform(rng, 64, 65536)
        kv_heads, group = (int(rng.choice([1, 2, 4, 8])) for _ in range(2))
        depth = int(rng.choice([32, 64, 64, 96, 128, 128, 192, 256]))
        block = int(rng.choice([16, 64, 64, 128, 128, 256])), int(rng.choice([32, 64, 128, 128]))
        heads = kv_heads * group
        name = f"b{batch}_{tokens}x{keys}_h{heads}of{kv_heads}_d{depth}_{block[0]}x{block[1]}"
        scores, rows = batch * heads * tokens * keys, batch * heads * max(tokens, keys)
        few = -(-tokens // block[0]) * -(-keys // block[1]) < 2**20
        # The dense scores are timed, too: they must fit.
        fits = few and max(scores / 16, rows * depth) <= limits.elements
        if fits and 2 * scores * depth <= limits.macs:
            case = AttentionCase(name, batch, tokens, keys, heads, kv_heads, depth, block)
            return Drawn("sparse_attention", number, case, dtype, "blocks", _density(rng))


def _pruned_matmul(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        rows = _log_uniform(rng, 1, 2048)
        inputs, outputs = (8 * _log_uniform(rng, 16, 512) for _ in range(2))
        if rows * inputs * outputs <= limits.macs:
            case = PrunedMatmulCase(f"{rows}x{inputs}x{outputs}", rows, inputs, outputs)
            return Drawn("pruned_matmul", number, case, dtype, "kept", rng.uniform(0.02, 0.4))


def _pruned_conv(rng: np.random.Generator, number: int, dtype: str, limits: Limits) -> Drawn:
    while True:
        batch, size = _log_uniform(rng, 1, 16), _log_uniform(rng, 7, 112)
        channels, outputs = (8 * _log_uniform(rng, 2, 64) for _ in range(2))
        window, stride = int(rng.choice([1, 3, 5])), int(rng.choice([1, 1, 2]))
        macs = batch * size * size * channels * outputs * window**2 / stride**2
        if macs <= min(limits.macs, 3e10):
            name = f"b{batch}_{size}x{size}_{channels}to{outputs}_{window}x{window}_s{stride}"
            case = PrunedConvCase(name, batch, size, channels, outputs, window, stride)
            return Drawn("pruned_conv", number, case, dtype, "kept", rng.uniform(0.05, 0.3))


OPS: dict[str, Callable[[np.random.Generator, int, str, Limits], Drawn]] = {
    "masked_conv": _conv,
    "grouped_matmul": _grouped,
    "masked_matmul": _matmul,
    "sparse_attention": _attention,
    "pruned_matmul": _pruned_matmul,
    "pruned_conv": _pruned_conv,
}
