"""What a variant of `masked_conv` costs on a GPU: measured rates and the shape of a call, turned
into a row of costs. Linear in the rates but for `listed`, so that they can be fitted.

    time = start + fill * MB + whole + even         and `listed` where a list is read
    whole = ceil(waves) * (steps * step + tail)       a wave takes as long, however full it is
    even  = waves * steps * row_step                  what shares the machine's bandwidths

MB are those of the result that no product writes; waves = rows * column tiles / (multiprocessors *
tile_m); steps are of 128 bytes of K (`k_steps`), or, where a box holds pixels of 64 bytes, of one
tap. Variants that stream K share the last wave: all of theirs is even, and no less
than a quarter of a wave, since at most four CTAs share a tile.
"""

import math
from typing import NamedTuple

import msgspec

from jaxsparse.select.costs import EVERY, Candidate, staircase, streamed_waves
from jaxsparse.select.table import DENSE, Measured, Rate
from jaxsparse.select.variants import Variant

#: Bytes of the K axis that one step multiplies, and of a narrow pixel, which is a step by itself.
STEP_BYTES = 128
NARROW_BYTES = 64
MEGABYTE = 1e6
#: How often the mask's pass touches the bytes of a dense result, read and written: that of a call
#: in which nothing follows the sums writes zeros alone, `zeroed` times on the mean over masks.
PASS = 2.0
_COPY = Measured("machine", "cuda")
#: `listed`: microseconds that reading a list costs. An H200's boxes take .1, .2 and .4 longer
#: (quartiles of 836 calls) over a list of all tiles than over every tile without one; of .2, .3 and
#: .5 it chose about as well as any. `in_clusters`: of the CTAs that the device holds singly, those
#: that clusters of so many hold: 116 of an H200's 132 in fours.
_MEASURED = Measured("masked_conv", "cuda")


def listed() -> float:
    """Microseconds that reading a list costs."""
    return _MEASURED("listed")


class Work(NamedTuple):
    """The shape of a call: what its cost depends on besides the mask.

    `fills`: zeros are written where no product is; not with a `base`. `bare`: nothing follows the
    sums, so that a dense convolution takes no pass over its result.
    """

    taps: int
    channels: int
    outputs: int
    itemsize: int
    pixels: int
    stride: int
    fills: bool = True
    bare: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """What rates are known by."""
        return self.taps, self.channels, self.outputs, self.stride

    @property
    def macs(self) -> int:
        """Multiply-adds of a full mask."""
        return self.pixels * self.taps * self.channels * self.outputs


class Terms(NamedTuple):
    """What the rates of a variant are multiplied by, for a list of tiles of one size.

    Attributes:
        steps: of K, in one tile.
        per_wave: list tiles that all multiprocessors hold at once.
        megabytes: of the whole result.
        tile_megabytes: of the result in one list tile.
    """

    steps: int
    per_wave: float
    megabytes: float
    tile_megabytes: float


def k_steps(taps: int, pixel_bytes: int) -> int:
    """Steps of K: of the flat (tap, channel) axis, or of each tap where that adds at most a quarter
    of them. As `TapsFirst` of cuda/kernels/masked_conv/problem.cu says.
    """
    together = -(-taps * pixel_bytes // STEP_BYTES)
    each = taps * -(-pixel_bytes // STEP_BYTES)
    return each if pixel_bytes > STEP_BYTES and 4 * each <= 5 * together else together


def terms(row: Variant, work: Work, area: int, processors: int, cluster: int = 1) -> Terms:
    """The terms of a variant on tiles of `area` pixels, in a launch in clusters of `cluster`; one
    that splits K is launched in its own clusters only.
    """
    split = row.fields["split_k"]
    pixel_bytes = work.channels * work.itemsize
    narrow = row.fields["box"] and pixel_bytes == NARROW_BYTES
    steps = work.taps if narrow else k_steps(work.taps, pixel_bytes)
    columns = max(-(-work.outputs // row.fields["tile_n"]), 1)
    processors *= row.fields.get("resident", 1)  # CTAs of one
    processors = round(processors * _MEASURED("in_clusters", str(split if split > 1 else cluster)))
    rows = processors * row.fields["tile_m"] / (columns * split)
    pixel = work.outputs * work.itemsize / MEGABYTE
    return Terms(-(-steps // split), max(rows / area, 1.0), work.pixels * pixel, area * pixel)


def candidate(
    row: Variant,
    rate: Rate,
    work: Work,
    area: int,
    processors: int,
    *,
    place: int = 0,
    tiles: int | None = None,
    cluster: int = 1,
) -> Candidate:
    """The candidate of a variant over list `place`, or over every one of `tiles`.

    Args:
        row: of the table of variants.
        rate: measured.
        work: the call.
        area: pixels of a list tile.
        processors: multiprocessors that the rates were measured on.
        place: which list.
        tiles: of a full mask, for a candidate that visits them all.
        cluster: CTAs of a cluster of the launch.
    """
    t = terms(row, work, area, processors, cluster)
    fill = rate.fill if work.fills else 0.0
    if tiles is None:
        rate = msgspec.structs.replace(rate, start=rate.start + listed())
    return staircase(
        rate,
        t.steps * rate.step + rate.tail,
        t.per_wave,
        streams=bool(row.fields["stream_k"]),
        number=row.number,
        tiles=tiles,
        place=place,
        even=t.steps * rate.row_step,
        fill=(fill * t.megabytes, fill * t.tile_megabytes),
        full=-(-work.pixels // area) if row.fields["stream_k"] else 0,
    )


def dense(rate: Rate, work: Work, *, measured: bool = False) -> Candidate:
    """What XLA's convolution and the mask cost: `start`, and `step` a billion multiply-adds, of
    which the pass over the result is a part. No handler knows it: it stands beside the others to be
    compared with. Unless its rate was `measured` on this very shape, few pixels have a least time.
    """
    took = rate.start + rate.step * work.macs / 1e9
    if work.bare:
        result = work.pixels * work.outputs * work.itemsize
        took -= min((PASS - _MEASURED("zeroed")) * result / _COPY("copy"), took / 2)
    if not measured:
        took = max(took, _least_dense(work))
    return Candidate(DENSE, -1, EVERY, (took, 0.0, float(EVERY), 0.0, 0.0))


def of_taps(taps: int) -> float:
    """How many times as long a dense product of a window of so many taps takes as one of 3 x 3."""
    return 1.0 + _MEASURED("dense_taps") * max(taps - 9, 0)


def _least_dense(work: Work) -> float:
    """What a dense convolution of few pixels takes: its tiles of 128 x 128 wait for the sum over K,
    a step of 128 bytes after the other, the longer the more of them share memory.
    """
    start, step, crowd, most = _MEASURED.several("dense_steps")
    tiles = -(-work.pixels // 128) * -(-work.outputs // 128)
    steps = work.taps * work.channels * work.itemsize / STEP_BYTES * of_taps(work.taps)
    return start + steps * step * (1.0 + crowd * min(tiles / most, 1.0))


def features(
    row: Variant, work: Work, area: int, processors: int, count: int, place: int
) -> tuple[float, ...]:
    """What multiplies (start, step, tail, row_step, fill) in the time of `count` list tiles.

    `place` is EVERY where all tiles are visited, and nothing is left to fill.
    """
    t = terms(row, work, area, processors)
    waves = count / math.floor(t.per_wave)
    whole = 0.0 if row.fields["stream_k"] else math.ceil(waves)
    if row.fields["stream_k"]:
        full = -(-work.pixels // area)
        waves = streamed_waves(count, full=full, rows=math.floor(t.per_wave))
    filled = work.fills and place != EVERY
    zeros = max(t.megabytes - count * t.tile_megabytes, 0.0) if filled else 0.0
    return 1.0, whole * t.steps, whole, waves * t.steps, zeros
