"""The exhibits of DynaSpa: convolutions and attention under spatial masks."""

from collections.abc import Iterator

from jaxsparse.bench.masked_conv.run import MASK_SIDE, Plan, measure
from jaxsparse.bench.papers.dynaspa_parts import attention, figure_3, table_4
from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting, drawings, trained
from jaxsparse.bench.report.rows import DENSE
from jaxsparse.testing import ConvCase

DENSITIES = (0.1, 0.3, 0.5)
#: Shapes of DynConv's ResNet at 224x224, by the paper's kinds: (side, channels, outputs).
KINDS = {
    "Conv2D3K": ((3, 1), ((56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512))),
    "Conv2D1K": ((1, 1), ((56, 64, 256), (28, 512, 128), (14, 1024, 256), (7, 512, 2048))),
    "Conv2D2S": ((3, 2), ((56, 128, 128), (28, 256, 256), (14, 512, 512))),
}


def figure_10(setting: Setting) -> Iterator[Figure]:
    """Single operators, batch 1."""
    for kind in KINDS:
        yield from _operators(kind, 1, setting)


def figure_11(setting: Setting) -> Iterator[Figure]:
    """3x3 convolutions at batch 1, 2 and 4."""
    for batch in (1, 2, 4) if setting.full else (2,):
        yield from _operators("Conv2D3K", batch, setting)


def _operators(kind: str, batch: int, setting: Setting) -> Iterator[Figure]:
    (window, stride), shapes = KINDS[kind]
    for side, channels, outputs in shapes if setting.full else shapes[-1:]:
        name = f"{kind} b{batch}_{side}x{side}x{channels}->{outputs}"
        case = ConvCase(
            name, batch, side, side, channels, outputs, (window, window), (stride, stride)
        )
        yield from conv_figures(case, setting)


def conv_figures(case: ConvCase, setting: Setting) -> Iterator[Figure]:
    """One case at the paper's densities: masks of blobs, whose index is built in every call."""
    plan = Plan(
        densities=DENSITIES,
        selections=(),
        as_called=True,
        variants=(),
        index_every=1,
        calls=setting.plan.calls,
        samples=setting.plan.samples,
        rotate_mb=setting.plan.rotate_mb,
        device=setting.plan.device,
    )
    setting.on_step(case.name)
    for rows in measure(case, "blobs", setting.dtype, plan, lambda side: None):
        sides = {row.side: row for row in rows}
        mine = sides[MASK_SIDE]
        label = f"{case.name}, {mine.pixel_density:.2f} of the pixels"
        if not mine.correct:
            yield Figure(label, "", f"wrong: {mine.note or mine.error}", correct=False)
            continue
        faster = mine.speedup if mine.device_speedup is None else mine.device_speedup
        time = mine.wall_us if mine.device_us is None else mine.device_us
        yield Figure(label, "", f"{time:,.1f} us: {faster:.2f}x {DENSE}")


_NETWORKS = (
    "whole networks are programs: `python examples/gated_resnet.py` (DynConv's ResNet-50 and -101 "
    "at densities .1, .3 and .5), `python examples/halting_vit.py` (A-ViT), `python "
    "examples/edit_photo.py` and `python examples/video.py` (SIGE: edits of an image)"
)
_OPERATORS = (
    "images/masked_conv_floor_nvidia_h200.md",
    "images/masked_conv_nvidia_h200.md",
    "images/masked_conv_widths_nvidia_h200.md",
)
EXHIBITS = (
    drawings("Figures 1, 2, 4, 5, 6, 8 and 9, Tables 1 and 2"),
    Exhibit(
        "Figure 3",
        "convolutions by gathers and scatters, 50 to 99 % left out",
        "embedded and mobile GPUs: existing sparse libraries are slower than dense",
        "times faster than XLA's dense convolution whose result is masked, and than a gather of "
        "the active pixels' windows, one product and a scatter in jax.numpy, which knows the "
        "number of pixels; masks of blobs, the time of the index included",
        figure_3,
    ),
    Exhibit(
        "Figure 7",
        "time of multiply-adds by warps and operations",
        "a line that its model of the hardware uses",
        missing="the model here takes rates that are measured on the device, not a loop of "
        "multiply-adds: `jaxsparse calibrate`.",
    ),
    Exhibit(
        "Figure 10",
        "single operators at densities .1, .3, .5",
        "an AGX Orin gives 1.3x to 4.4x the other systems, an AGX Xavier 1.6x to 7.7x, float32",
        "times faster than XLA's dense convolution in float32 (on a GPU at \"highest\"); DynConv's "
        "shapes, masks of blobs, the time of the index included",
        figure_10,
        published=_OPERATORS,
    ),
    Exhibit(
        "Figure 10, Attention",
        "the two products of an attention at densities .1, .3, .5",
        "an AGX Orin, A-ViT's tokens",
        "times faster than XLA's products whose operands are masked; 6 heads of 64, 197 tokens "
        "(A-ViT's size); tokens drawn at random, because its trained network is not available",
        attention,
    ),
    Exhibit(
        "Figure 11",
        "3x3 convolutions by batch",
        "an AGX Orin",
        "as Figure 10",
        figure_11,
        published=_OPERATORS,
    ),
    Exhibit(
        "Figure 12",
        "whole networks: DynConv, A-ViT, SIGE",
        "1.4x to 4.8x on an AGX Orin",
        missing=f"{_NETWORKS}.",
        published=(
            "tokens/halting_amd_epyc_2_cores.md",
            "images/video_amd_epyc_2_cores.md",
            "choice/selection_nvidia_h200.md",
        ),
    ),
    trained(
        "Figure 13",
        "operators of the three networks in their order",
        "ImageNet",
        "The shares of the masks by layer come from them.",
    ),
    trained("Figure 14", "whole networks on four data sets", "ImageNet, COCO, VOC or Cityscapes"),
    trained(
        "Table 3",
        "accuracy",
        "ImageNet",
        "`python examples/gated_resnet.py` and `python examples/halting_vit.py` compare accuracies "
        "on canvases of digits.",
    ),
    trained("Figure 15", "with quantised values", "ImageNet"),
    Exhibit(
        "Figure 16",
        "quality of the search by its steps",
        "46 % less search time than Romou on an AGX Xavier, 58 % less on an Adreno 650",
        missing="`python benchmarks/masked_conv/search.py` compares the search with measuring "
        "everything, with and without the bound.",
        published=("choice/search_nvidia_h200.md",),
    ),
    Exhibit(
        "Table 4",
        "costs of reading the mask",
        "the worst of its GPUs, density .1",
        "the times of `pack_mask` and of `tile_index` (with the bits), by themselves, as shares of "
        "the time of the same convolution that is given a mask",
        table_4,
        published=("images/tile_index_nvidia_h200.md",),
    ),
)
