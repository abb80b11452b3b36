"""The exhibits of SparDR: pruned convolutions on CPUs and GPUs."""

import dataclasses
from collections.abc import Iterator

from jaxsparse.bench.papers.exhibit import (
    Exhibit,
    Figure,
    Setting,
    drawings,
    speedups,
    trained,
)
from jaxsparse.bench.products import pruned
from jaxsparse.bench.products.run import Comparison, ProductPlan, measure
from jaxsparse.testing.pruned_cases import PrunedConvCase, PrunedMatmulCase

# Table II: channels, side, outputs, window, stride, share of the weights that is zero.
LAYERS = {
    "CV1": (179, 14, 179, 3, 1, 0.827797),
    "CV2": (179, 14, 716, 1, 1, 0.831005),
    "CV3": (179, 28, 179, 3, 2, 0.827987),
    "CV4": (2048, 7, 358, 1, 1, 0.881186),
    "CV5": (358, 28, 716, 1, 2, 0.829097),
    "CV6": (358, 7, 2048, 1, 1, 0.881133),
    "CV7": (44, 56, 44, 1, 1, 0.871384),
    "CV8": (716, 14, 2048, 1, 2, 0.879547),
    "CV9": (89, 28, 89, 3, 1, 0.832793),
    "CV10": (512, 14, 512, 3, 1, 0.9),
    "CV11": (192, 40, 192, 3, 1, 0.890501),
    "CV12": (288, 20, 288, 3, 1, 0.878399),
    "CV13": (96, 80, 96, 3, 1, 0.928204),
}
SMALL = ("CV1", "CV7", "CV9")
#: Figure 10: the memory saved, compared with im2col.
MEMORY = {"CV11": "62 % less", "CV13": "66 % less"}
#: ResNet-50's convolutions after the first: channels, side, outputs, window, stride, how many.
RESNET50 = (
    *((64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 3), (64, 56, 256, 1, 1, 4), (256, 56, 64, 1, 1, 2)),
    *((256, 56, 128, 1, 1, 1), (128, 56, 128, 3, 2, 1), (128, 28, 512, 1, 1, 4)),
    *((256, 56, 512, 1, 2, 1), (512, 28, 128, 1, 1, 3), (128, 28, 128, 3, 1, 3)),
    *((512, 28, 256, 1, 1, 1), (256, 28, 256, 3, 2, 1), (256, 14, 1024, 1, 1, 6)),
    *((512, 28, 1024, 1, 2, 1), (1024, 14, 256, 1, 1, 5), (256, 14, 256, 3, 1, 5)),
    *((1024, 14, 512, 1, 1, 1), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 3)),
    *((1024, 14, 2048, 1, 2, 1), (2048, 7, 512, 1, 1, 2), (512, 7, 512, 3, 1, 2)),
)
RESNET50_PRUNED = 0.85


def figure_1(setting: Setting) -> Iterator[Figure]:
    """A product with an unstructured weight by its share of zeros."""
    size = 4096 if setting.full and setting.gpu else 1024
    case = PrunedMatmulCase(f"{size}x{size} by {size}x{size}", size, size, size)
    zeros = (0.7, 0.8, 0.9, 0.95, 0.99)
    yield from speedups(pruned.comparisons(case, setting.dtype, setting.plan, zeros), setting)


def layers(setting: Setting) -> Iterator[tuple[PrunedConvCase, float]]:
    """The layers of Table II that are measured, with their share of zeros."""
    for name, (channels, side, outputs, window, stride, zeros) in LAYERS.items():
        if setting.full or name in SMALL:
            yield PrunedConvCase(name, 1, side, channels, outputs, window, stride), zeros


def comparisons(setting: Setting) -> Iterator[Comparison]:
    """Table II's layers beside XLA's dense convolution."""
    for case, zeros in layers(setting):
        yield from pruned.comparisons(case, setting.dtype, setting.plan, [zeros])


def figure_9(setting: Setting) -> Iterator[Figure]:
    """Time by layer."""
    return speedups(comparisons(setting), setting)


def figure_10(setting: Setting) -> Iterator[Figure]:
    """Temporary memory of a call, beside the size of im2col's matrix."""
    plan = dataclasses.replace(setting.plan, samples=1, rivals=False)
    for case, zeros in layers(setting):
        setting.on_step(f"{case.name}: memory")
        (one,) = pruned.comparisons(case, setting.dtype, plan, [zeros])
        (row,) = (row for row in measure(one, plan, lambda side: None) if row.side == pruned.OURS)
        pixels = (-(-case.size // case.stride)) ** 2
        whole = 4e-6 * case.window**2 * case.channels * pixels
        if row.temporary_mb is None:
            text = "XLA gives no size"
        else:
            saved = 100 * (1 - row.temporary_mb / whole)
            side = f"{saved:.0f} % less" if saved >= 0 else f"{-saved:.0f} % more"
            text = f"{row.temporary_mb:.2f} MB, {side}"
        yield Figure(f"{case.name}: im2col {whole:.2f} MB", MEMORY.get(case.name, ""), text)


def table_3(setting: Setting) -> Iterator[Figure]:
    """The sum over ResNet-50's pruned convolutions."""
    chosen = RESNET50 if setting.full else RESNET50[-3:]
    plan = dataclasses.replace(setting.plan, rivals=False)
    ours, dense = _network(chosen, setting, plan)
    case = f"{sum(layer[-1] for layer in chosen)} convolutions, {RESNET50_PRUNED:.0%} zeros"
    yield Figure(case, "1.99x TVM", f"{ours:.2f} ms: {dense / ours:.2f}x {pruned.DENSE}")


def _network(
    chosen: tuple[tuple[int, ...], ...], setting: Setting, plan: ProductPlan
) -> tuple[float, float]:
    """Milliseconds of ours and of dense, each layer as often as the network has it."""
    ours = dense = 0.0
    for channels, side, outputs, window, stride, count in chosen:
        name = f"{side}x{side}x{channels}->{outputs} {window}x{window}"
        setting.on_step(name)
        case = PrunedConvCase(name, 1, side, channels, outputs, window, stride)
        (one,) = pruned.comparisons(case, setting.dtype, plan, [RESNET50_PRUNED])
        for row in measure(one, plan, lambda side: None):
            if not row.correct or row.wall_us is None:
                raise RuntimeError(f"{name}, {row.side}: {row.note or 'a wrong result'}")
            time = count * (row.wall_us if row.device_us is None else row.device_us) / 1e3
            ours, dense = (ours + time, dense) if row.side == pruned.OURS else (ours, dense + time)
    return ours, dense


_PUBLISHED = (
    "pruned/pruned_conv_nvidia_h200.md",
    "pruned/pruned_conv_emerald_rapids_2_cores.md",
    "pruned/pruned_conv_intel_xeon_2_cores.md",
)
EXHIBITS = (
    Exhibit(
        "Figure 1",
        "a sparse product by its share of zeros",
        "cuSPARSE is slower than cuBLAS up to 95 %",
        "times faster than XLA's dense product and than BCOO; random pattern",
        figure_1,
        published=("pruned/pruned_nvidia_h200.md",),
    ),
    trained(
        "Figure 2",
        "zeros among the activations of a pruned ResNet-50: .35 to .65",
        "ImageNet",
        "`python examples/relu_activations.py` prints the zeros of a transformer that it trains.",
    ),
    drawings("Figures 3 to 8, Table I", "how the method works, and its symbols"),
    Exhibit(
        "Figure 9, Table II",
        "pruned convolutions, batch 1",
        "a Xeon E5-2620 gives 1.3x to 3.6x TVM's dense convolution, an RTX 3090 1.1x to 5x",
        "times faster than XLA's dense convolution; weights of Table II's shapes and shares of "
        'zeros, random pattern, padding "SAME"',
        figure_9,
        published=_PUBLISHED,
    ),
    Exhibit(
        "Figure 10",
        "memory",
        "temporaries against those of im2col",
        "XLA's own analysis of a compiled call (on a CPU without the kernel's own workspace), "
        "against the size of im2col's matrix",
        figure_10,
    ),
    Exhibit(
        "Table III",
        "all pruned convolutions of ResNet-50",
        "9.37 ms on a Xeon E5-2620, where TVM takes 18.64; 2.12 ms on an RTX 3090 (TVM 3.32)",
        "the sum over ResNet-50's own widths with random zeros, because the pruned network's "
        "weights are not available",
        table_3,
        published=(
            "pruned/pruned_network_nvidia_h200.md",
            "pruned/pruned_network_emerald_rapids_2_cores.md",
            "pruned/pruned_networks_amd_epyc_2_cores.md",
        ),
    ),
)
