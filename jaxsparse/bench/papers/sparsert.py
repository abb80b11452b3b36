"""The exhibits of SparseRT: pruned matrix products and convolutions on GPUs."""

from collections.abc import Callable, Iterator

from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting, speedups
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
                yield from speedups(found, setting, _says(factor))


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


EXHIBITS = (
    Exhibit(
        "Table 1, Figure 4c",
        "products with pruned weights: M (outputs) x K x N",
        "a T4, float32, times faster than cuBLAS",
        'times faster than XLA\'s dense product in float32 (on a GPU at "highest") and than BCOO; '
        "random pattern",
        table_1,
    ),
    Exhibit(
        "Table 3, Figure 7",
        "3x3 convolutions with pruned kernels, batch 1",
        "a T4, float32, times faster than cuDNN's best algorithm",
        'times faster than XLA\'s dense convolution in float32 (on a GPU at "highest"); random '
        "pattern",
        table_3,
    ),
    Exhibit(
        "Figure 4d",
        "against cuSPARSE",
        "a T4",
        missing="`python benchmarks/pruned/gpu.py` times cuSPARSE, where cupy is installed.",
    ),
    Exhibit(
        "Table 2",
        "accuracy of block and unstructured pruning",
        "ImageNet",
        missing="it needs ImageNet and the networks trained on it.",
    ),
    Exhibit(
        "Figure 5",
        "two GPUs",
        "a T4 and a V100",
        missing="run Table 1 on a second GPU.",
    ),
    Exhibit(
        "Figure 6",
        "against Sputnik",
        "a V100",
        missing="Sputnik is not packaged. Its products are problems 12 to 20 of Table 1.",
    ),
    Exhibit(
        "Figure 8",
        "unrolled code against loops",
        "a T4",
        missing="both are executors here: `jaxsparse bench pruned_matmul --variant` measures each.",
    ),
)
