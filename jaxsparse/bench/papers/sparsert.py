"""The exhibits of SparseRT: pruned matrix products and convolutions on GPUs."""

import dataclasses
from collections.abc import Callable, Iterator

from jaxsparse.bench.papers.exhibit import (
    Exhibit,
    Figure,
    Setting,
    drawings,
    speedups,
    trained,
)
from jaxsparse.bench.products import pruned
from jaxsparse.bench.products.run import Comparison
from jaxsparse.testing.pruned_cases import PrunedConvCase, PrunedMatmulCase

#: Table 1: number -> M (outputs), K (inputs), N (rows of x), and share of zeros -> speed-up.
PRODUCTS = {
    1: (64, 256, 3136, {0.9: 4.3, 0.95: 5.7}),
    2: (256, 64, 3136, {0.9: 2.5, 0.95: 3.0}),
    3: (128, 512, 784, {0.9: 4.0, 0.95: 5.9}),
    4: (512, 128, 784, {0.9: 3.7, 0.95: 4.5}),
    5: (256, 1024, 196, {0.9: 3.0, 0.95: 4.4}),
    6: (1024, 256, 196, {0.9: 3.1, 0.95: 4.2}),
    7: (512, 2048, 49, {0.9: 2.7, 0.95: 4.5}),
    8: (2048, 512, 49, {0.9: 4.8, 0.95: 6.6}),
    9: (2048, 512, 256, {0.9: 4.2, 0.95: 6.8}),
    10: (512, 2048, 256, {0.9: 4.2, 0.95: 7.6}),
    11: (512, 512, 256, {0.9: 6.0, 0.95: 9.0}),
    12: (64, 32, 12544, {0.9: 1.4}),
    13: (128, 64, 3136, {0.9: 3.4}),
    14: (128, 128, 3136, {0.9: 4.0}),
    15: (256, 128, 784, {0.9: 4.2}),
    16: (256, 256, 784, {0.9: 3.5}),
    17: (512, 256, 196, {0.9: 2.3}),
    18: (512, 512, 196, {0.9: 3.2}),
    19: (1024, 512, 49, {0.9: 2.6}),
    20: (1024, 1024, 49, {0.9: 4.5}),
}
#: Table 3: number -> side, channels (in and out), and share of zeros -> speed-up.
CONVOLUTIONS = {
    1: (56, 64, {0.9: 3.7, 0.95: 5.3}),
    2: (28, 128, {0.9: 2.0, 0.95: 3.5}),
    3: (14, 256, {0.9: 1.4, 0.95: 2.5}),
    4: (7, 512, {0.9: 2.4, 0.95: 8.5}),
}
SMALL = (7, 17)


def table_1(setting: Setting) -> Iterator[Figure]:
    """The 20 products."""
    for number, (m, k, n, paper) in PRODUCTS.items():
        if setting.full or number in SMALL:
            case = PrunedMatmulCase(f"{number}: {m}x{k}x{n}", n, k, m)
            for zeros, factor in paper.items():
                found = pruned.comparisons(case, setting.dtype, setting.plan, [zeros])
                yield from speedups(found, setting, _says(factor), flops=_operations(zeros))


def _operations(zeros: float) -> Callable[[Comparison], float]:
    """Multiplications and additions of kept weights, as Figure 4a counts them."""

    def count(comparison: Comparison) -> float:
        m, k, n, _ = PRODUCTS[int(comparison.case.split(":")[0])]
        return 2.0 * m * k * n * (1 - zeros)

    return count


def figure_8(setting: Setting) -> Iterator[Figure]:
    """The executor that is unrolled code, and one that loops over lists, at 90 % zeros."""
    if not setting.gpu:
        yield Figure("all problems", "", "a CPU has a single executor here, without unrolled code")
        return
    plan = dataclasses.replace(setting.plan, rivals=False)
    for number, (m, k, n, _) in PRODUCTS.items():
        if setting.full or number in SMALL:
            case = PrunedMatmulCase(f"{number}: {m}x{k}x{n}", n, k, m)
            found = pruned.comparisons(case, setting.dtype, plan, [0.9], ("code", "rows"))
            yield from speedups(found, setting)


def table_3(setting: Setting) -> Iterator[Figure]:
    """The four 3x3 convolutions."""
    for number, (side, channels, paper) in CONVOLUTIONS.items():
        if setting.full or number == len(CONVOLUTIONS):
            name = f"{number}: {side}x{side}x{channels}"
            case = PrunedConvCase(name, 1, side, channels, channels, 3)
            for zeros, factor in paper.items():
                found = pruned.comparisons(case, setting.dtype, setting.plan, [zeros])
                yield from speedups(found, setting, _says(factor))


def _says(factor: float) -> Callable[[Comparison], str]:
    """What the paper reports of a comparison."""
    return lambda comparison: f"{factor}x"


_PUBLISHED = ("pruned/pruned_nvidia_h200.md",)
EXHIBITS = (
    drawings("Figures 1 to 3"),
    Exhibit(
        "Table 1, Figures 4a to 4c",
        "products with pruned weights: M (outputs) x K x N",
        "a T4, float32, times faster than cuBLAS; 3.4x at 90 % and 5.4x at 95 % in the geometric "
        "mean",
        'times faster than XLA\'s dense product in float32 (on a GPU at "highest") and than BCOO; '
        "random pattern; the rate is that of the kept weights",
        table_1,
        published=_PUBLISHED,
    ),
    Exhibit(
        "Figure 4d",
        "against cuSPARSE",
        "a T4, geometric means 20x at 90 % and 15x at 95 %",
        missing="`python benchmarks/pruned/gpu.py` times cuSPARSE, where cupy is installed. Table "
        "1 has BCOO.",
        published=_PUBLISHED,
    ),
    trained("Table 2", "accuracy of the pruned networks", "ImageNet and WMT"),
    Exhibit(
        "Figure 5",
        "two GPUs",
        "a T4 and a V100",
        missing="it is Table 1 on a second GPU, which the command measures there.",
    ),
    Exhibit(
        "Figure 6",
        "against Sputnik",
        "a V100",
        missing="Sputnik is not packaged. Its products are problems 12 to 20 of Table 1.",
    ),
    Exhibit(
        "Table 3, Figure 7",
        "3x3 convolutions with pruned kernels, batch 1",
        "a T4, float32, times faster than cuDNN's best algorithm",
        'times faster than XLA\'s dense convolution in float32 (on a GPU at "highest"); random '
        "pattern",
        table_3,
        published=("pruned/pruned_conv_nvidia_h200.md",),
    ),
    Exhibit(
        "Figure 8",
        "unrolled code against loops",
        "a T4: more than 10x by unrolling in some problems; load balance and tuning are apart",
        "how many times as long `code` (unrolled) and `rows` (loops over lists) take as what runs "
        "by default",
        figure_8,
        published=_PUBLISHED,
    ),
)
