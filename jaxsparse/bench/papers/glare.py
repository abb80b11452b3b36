"""The exhibits of GLARE: saturated segments in the sparse DNN challenge."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from jaxsparse import bounded
from jaxsparse.bench.challenge import command as challenge
from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting
from jaxsparse.ops import bounded_matmul

#: Table III: (neurons, layers) -> milliseconds of XY, XY+GLARE, SNICIT, SNICIT+GLARE.
RUNTIMES = {
    (1024, 120): (18.2043, 20.5027, 12.8492, 12.9843),
    (1024, 480): (57.1754, 62.9377, 22.468, 22.5781),
    (1024, 1920): (208.593, 235.835, 58.9009, 60.9954),
    (4096, 120): (39.3821, 37.9181, 29.2297, 29.3868),
    (4096, 480): (104.353, 95.0824, 38.8117, 39.3935),
    (4096, 1920): (348.886, 318.481, 81.7058, 78.4672),
    (16384, 120): (124.922, 114.332, 97.3652, 97.2451),
    (16384, 480): (300.869, 230.877, 108.174, 105.142),
    (16384, 1920): (994.232, 694.165, 152.281, 147.089),
    (65536, 120): (554.5584, 571.6059, 738.4524, 727.829),
    (65536, 480): (1427.9744, 1453.8338, 957.0351, 887.2877),
    (65536, 1920): (4758.151, 4845.427, 1827.796, 1515.235),
}
WAYS = ("persistent", "unfolded", "row", "row+recorder", "slab", "slab+recorder")
SHOWN = (0, 4, 7, 10, 15, 20, 30, 60, 119)


def figure_1(setting: Setting) -> Iterator[Figure]:
    """The shares of zeros and upper bounds after some layers of the network 1024-120."""
    images, _ = challenge.images_of(10000 if setting.full else 500)
    values = jnp.asarray(bounded.challenge_inputs(images, 1024))
    depth = 120 if setting.full else 12
    for i, layer in enumerate(bounded.radixnet(1024, depth)):
        values = bounded_matmul(values, layer).materialize()
        if i in SHOWN:
            setting.on_step(f"layer {i + 1}")
            got = np.asarray(values)
            zero, upper = got == 0, got == layer.upper
            text = (
                f"zeros {zero.mean():.3f}, rows of zeros {zero.all(1).mean():.3f}, upper bounds "
                f"{upper.mean():.3f}, of the others {upper.sum() / max((~zero).sum(), 1):.3f}"
            )
            yield Figure(f"after layer {i + 1}", "", text)


def figure_3(setting: Setting) -> Iterator[Figure]:
    """The shares of segments of activations that the recorder saves reading and writing."""
    images, _ = challenge.images_of(10000 if setting.full else 500)
    depth = 120 if setting.full else 12
    setting.on_step("accesses")
    for saved in challenge.saved_accesses(1024, depth, images):
        if saved.layer in SHOWN:
            text = f"reads {100 * saved.reads:.1f} %, writes {100 * saved.writes:.1f} %"
            yield Figure(f"layer {saved.layer + 1}", "", text)


def table_3(setting: Setting) -> Iterator[Figure]:
    """Milliseconds of whole networks."""
    shapes = list(RUNTIMES) if setting.full else [(1024, 120)]
    for neurons in dict.fromkeys(n for n, _ in shapes):
        depths = [depth for n, depth in shapes if n == neurons]
        setting.on_step(f"{neurons} neurons")
        ways: list[str] = [*(WAYS if setting.full else WAYS[:1])]
        count = 60000 if setting.full else 2000
        found = challenge.run([neurons], depths, ways, count, setting.plan.samples, 1.0, 1.0)
        for row in found.rows:
            xy, xy_glare, snicit, snicit_glare = RUNTIMES[row.neurons, row.depth]
            paper = (
                f"XY {xy:.1f}, with GLARE {xy_glare:.1f}; SNICIT {snicit:.1f}, {snicit_glare:.1f}"
            )
            case = f"{row.neurons}-{row.depth}, {row.way}, {found.images} images"
            if row.milliseconds is None:
                yield Figure(case, paper, f"left out: {row.note}")
                continue
            yield Figure(case, paper, f"{row.milliseconds:.3f}", correct=bool(row.correct))


_IMAGES = "60,000 images"
EXHIBITS = (
    Exhibit(
        "Figure 1a",
        "zeros and upper bounds in 1024-120",
        "a picture",
        "shares of the values after some layers",
        figure_1,
    ),
    Exhibit(
        "Figure 3",
        "accesses that the recorder saves in 1024-120",
        "below 15 %: weights are read, too",
        "shares of the segments of activations; weights are not counted",
        figure_3,
    ),
    Exhibit(
        "Table III",
        "milliseconds of the challenge's networks",
        f"{_IMAGES}; of its four kernels XY and SNICIT are the fastest",
        f"{_IMAGES} (--small: 2,000); `persistent` and `unfolded` retire decided rows, the other "
        "ways run layer by layer, with and without the recorder",
        table_3,
    ),
    Exhibit(
        "Table I",
        "latencies of a GPU's memories",
        "quoted from elsewhere",
        missing="the paper quotes these numbers and does not measure them. `jaxsparse calibrate` "
        "measures the memory bandwidth of this machine.",
    ),
)
