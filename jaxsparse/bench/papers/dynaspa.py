"""The exhibits of DynaSpa: convolutions and attention under spatial masks."""

from collections.abc import Iterator

from jaxsparse.bench.masked_conv.run import MASK_SIDE, Plan, measure
from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting
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
    "`python examples/demo.py` has a gated classifier and an edited network, and "
    "`python examples/halting_vit.py` has A-ViT's halting, not the paper's three"
)
EXHIBITS = (
    Exhibit(
        "Figure 10",
        "single operators at densities .1, .3, .5",
        "an AGX Orin gives 1.3x to 4.4x the other systems, an AGX Xavier 1.6x to 7.7x, float32",
        "times faster than XLA's dense convolution in float32 (on a GPU at \"highest\"); DynConv's "
        "shapes, masks of blobs, the time of the index included",
        figure_10,
    ),
    Exhibit(
        "Figure 11",
        "3x3 convolutions by batch",
        "an AGX Orin",
        "as Figure 10",
        figure_11,
    ),
    Exhibit(
        "Figure 10, Attention",
        "A-ViT's products of kept tokens",
        "an AGX Orin",
        missing="A-ViT's masks come from a trained network, which is not available.",
    ),
    Exhibit(
        "Figures 12 to 14",
        "whole networks: DynConv, A-ViT, SIGE",
        "1.4x to 4.8x on an AGX Orin",
        missing=f"{_NETWORKS}.",
    ),
    Exhibit(
        "Table 3",
        "accuracy",
        "ImageNet",
        missing="it needs ImageNet and the networks trained on it.",
    ),
    Exhibit(
        "Figure 15",
        "with quantised values",
        "ImageNet",
        missing="it needs ImageNet and the networks trained on it.",
    ),
    Exhibit(
        "Section 5.3",
        "search time",
        "hours to minutes",
        missing="`jaxsparse tune` prints its own measurements and time.",
    ),
)
