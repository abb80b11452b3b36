"""The exhibits of GLARE: saturated segments in the sparse DNN challenge."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from jaxsparse import bounded
from jaxsparse.bench.challenge import command as challenge
from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting, drawings
from jaxsparse.ops import bounded_matmul

KERNELS = ("BF", "SNIG", "XY", "SNICIT")
#: Table III: (neurons, layers) -> milliseconds of each kernel and of the same with GLARE.
RUNTIMES = {
    (1024, 120): (451.508, 431.894, 209.038, 198.753, 18.2043, 20.5027, 12.8492, 12.9843),
    (1024, 480): (1262.99, 1142.5, 653.692, 607.657, 57.1754, 62.9377, 22.468, 22.5781),
    (1024, 1920): (4564.58, 4049.81, 2376.64, 2267.66, 208.593, 235.835, 58.9009, 60.9954),
    (4096, 120): (1442.55, 1339.59, 599.074, 590.782, 39.3821, 37.9181, 29.2297, 29.3868),
    (4096, 480): (4229.13, 3719.68, 1909.64, 1889.06, 104.353, 95.0824, 38.8117, 39.3935),
    (4096, 1920): (15413.3, 13323.2, 7123.93, 7101.33, 348.886, 318.481, 81.7058, 78.4672),
    (16384, 120): (5305.51, 4965.01, 2265.96, 2208.76, 124.922, 114.332, 97.3652, 97.2451),
    (16384, 480): (15227.2, 13436.8, 6477.07, 6746.5, 300.869, 230.877, 108.174, 105.142),
    (16384, 1920): (54983.7, 48796.3, 23617.6, 25001.8, 994.232, 694.165, 152.281, 147.089),
    (65536, 120): (417769, 33912, 76224.7, 74404.2, 554.5584, 571.6059, 738.4524, 727.829),
    (65536, 480): (1647670, 66882.3, 91935.7, 88676.8, 1427.9744, 1453.8338, 957.0351, 887.2877),
    (65536, 1920): (6555300, 207741, 152753, 138634, 4758.151, 4845.427, 1827.796, 1515.235),
}
WAYS = ("persistent", "unfolded", "row", "row+recorder", "slab", "slab+recorder")
DEPTH = 120
SHOWN = (0, 4, 7, 10, 15, 20, 30, 60, 119)


def figure_1(setting: Setting) -> Iterator[Figure]:
    """The shares of zeros and upper bounds after some layers of the network 1024-120."""
    images, source = challenge.images_of(10000 if setting.full else 500)
    values = jnp.asarray(bounded.challenge_inputs(images, 1024))
    for i, layer in enumerate(bounded.radixnet(1024, DEPTH)):
        values = bounded_matmul(values, layer).materialize()
        if i in SHOWN:
            setting.on_step(f"layer {i + 1}")
            got = np.asarray(values)
            zero, upper = got == 0, got == layer.upper
            text = (
                f"zeros {zero.mean():.3f}, rows of zeros {zero.all(1).mean():.3f}, upper bounds "
                f"{upper.mean():.3f}, of the others {upper.sum() / max((~zero).sum(), 1):.3f}"
            )
            yield Figure(f"after layer {i + 1}, {source}", "", text)


def figure_3(setting: Setting) -> Iterator[Figure]:
    """The shares of segments of activations that the recorder saves reading and writing."""
    images, source = challenge.images_of(10000 if setting.full else 500)
    setting.on_step("accesses")
    for saved in challenge.saved_accesses(1024, DEPTH, images):
        if saved.layer in SHOWN:
            text = f"reads {100 * saved.reads:.1f} %, writes {100 * saved.writes:.1f} %"
            yield Figure(f"layer {saved.layer + 1}, {source}", "", text)


def table_3(setting: Setting) -> Iterator[Figure]:
    """Milliseconds of whole networks."""
    shapes = list(RUNTIMES) if setting.full else [(1024, 120)]
    for neurons in dict.fromkeys(n for n, _ in shapes):
        depths = [depth for n, depth in shapes if n == neurons]
        setting.on_step(f"{neurons} neurons")
        ways: list[str] = [*WAYS]
        count = 60000 if setting.full else 2000
        found = challenge.run([neurons], depths, ways, count, setting.plan.samples, 1.0, 1.0)
        for row in found.rows:
            paper = reported(row.neurons, row.depth) if row.way == WAYS[0] else ""
            case = f"{row.neurons}-{row.depth}, {row.way}, {found.images} images ({found.inputs})"
            if row.milliseconds is None:
                yield Figure(case, paper, f"left out: {row.note}")
                continue
            yield Figure(case, paper, f"{row.milliseconds:.3f}", correct=bool(row.correct))


def reported(neurons: int, depth: int) -> str:
    """Table III's milliseconds of a network, each kernel without and with GLARE."""
    times = iter(RUNTIMES[neurons, depth])
    pairs = zip(KERNELS, zip(times, times, strict=True), strict=True)
    return ", ".join(f"{name} {alone:,.0f} ({glare:,.0f})" for name, (alone, glare) in pairs)


_PUBLISHED = ("saturated/challenge_nvidia_h200.md",)
_IMAGES = "60,000 images"
_INPUTS = "MNIST where JAXSPARSE_DATA is set, or else images of generated strokes"
EXHIBITS = (
    Exhibit(
        "Figure 1a",
        "zeros and upper bounds in 1024-120",
        "after layer 27 zeros 0.970, all in rows of zeros, upper bounds 0.030, all of the others",
        f"shares of the values after some layers; {_INPUTS}",
        figure_1,
    ),
    Exhibit(
        "Figure 1b",
        "upper bounds in a feature map of a convolutional network",
        "MNIST, ReLU1",
        missing="it is a picture of one image. `python examples/saturated_mobilenet.py` trains a "
        "network with ReLU6 and prints how often the segments of each layer saturate.",
    ),
    drawings("Figure 2, Table II", "the method, and formulas of the accesses of each kernel"),
    Exhibit(
        "Figure 3",
        "accesses that the recorder saves in 1024-120",
        "below 15 % for each of its kernels, because reading the weights is counted; none until "
        "layer 7, steady from layer 30 on",
        f"shares of the segments of activations; weights are not counted; {_INPUTS}",
        figure_3,
        published=_PUBLISHED,
    ),
    Exhibit(
        "Table III",
        "milliseconds of the challenge's networks",
        f"{_IMAGES} on an RTX 3090; each kernel without and (with) GLARE",
        f"{_IMAGES} (--small: 2,000); `persistent` and `unfolded` retire decided rows, the other "
        f"ways run layer by layer, with and without the recorder; {_INPUTS}",
        table_3,
        published=_PUBLISHED,
    ),
    Exhibit(
        "Table I",
        "latencies of a GPU's memories",
        "quoted from elsewhere",
        missing="the paper quotes these numbers and does not measure them. `jaxsparse calibrate` "
        "measures the memory bandwidth of this machine.",
    ),
)
