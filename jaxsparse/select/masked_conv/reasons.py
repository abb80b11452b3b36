"""Which variant of `masked_conv` takes which problem, and which comes first where nothing was
measured. The handlers refuse by the same rules.
"""

import math
from collections.abc import Sequence

from jaxsparse.core.device import is_hopper
from jaxsparse.core.geometry import Pair
from jaxsparse.select.masked_conv.problem import OP, ConvProblem
from jaxsparse.select.variants import Variant, table

#: Multiprocessors of a device that nothing is known of.
USUAL_PROCESSORS = 100


def takes(problem: ConvProblem) -> list[str]:
    """The variants whose handler takes this problem, over its first list, in order of preference
    where nothing was measured: mma.sync, if the input has enough channels for it, then as the
    tables list them.
    """
    rows = table(OP, problem.platform)
    names = [n for n in rows if reason_against(problem, n) is None]
    tiled = [rows[n] for n in names if rows[n].fields.get("mma")]
    if not tiled or problem.kernel_shape[2] < mma_channels(problem.itemsize):
        return names
    first = fitting(tiled, math.prod(problem.shape), problem.kernel_shape[3]).name
    return [first, *(n for n in names if n != first)]


def mma_channels(itemsize: int) -> int:
    """Input channels from which mma.sync is preferred to `direct`: of 16 bits where it is faster,
    since the narrow kernel takes four at most; fewer than 16 of float32 are cheap, and stay exact.
    """
    return 16 if itemsize == 4 else 5


def fitting(rows: Sequence[Variant], pixels: int, outputs: int) -> Variant:
    """Of rows of mma.sync the one with the largest tile that a tenth of the pixels fill all
    multiprocessors of a usual device with, if any, and that is not half empty.
    """
    by_size = sorted(rows, key=lambda r: (-r.fields["tile_m"] * r.fields["tile_n"], r.number))
    for row in by_size[:-1]:
        m, n = row.fields["tile_m"], row.fields["tile_n"]
        tiles = pixels // (10 * m) * -(-outputs // n)
        if tiles >= USUAL_PROCESSORS and (n <= 64 or 2 * outputs > n):
            return row
    return by_size[-1]


def reason_against(problem: ConvProblem, variant: str, tile: Pair | None = None) -> str | None:
    """Why `variant` does not take this problem over a list of tiles (None: the first one), or
    None.
    """
    if problem.platform == "cpu" or variant == "direct":
        return None
    row = table(OP, problem.platform)[variant]
    (kh, kw, _, outputs), channels = problem.kernel_shape, problem.x_shape[3]
    vector, groups = 16 // problem.itemsize, problem.geometry.groups
    float32 = problem.dtype == "float32"
    if groups != 1:
        return f"groups={groups}: it takes 1"
    if variant == "ffma":
        vector = 4
        if not float32 or problem.precision != "highest":
            return "it is for float32 at precision 'highest'"
    elif problem.precision == "highest" and float32:
        return "float32 products are asked for, not TF32"
    elif kh * kw > 64 or max(kh, kw) > 32:
        return f"a window of {kh}x{kw}: it takes 64 taps, 32 a side"
    elif row.fields.get("mma"):
        return "the input has no channels" if channels == 0 else None
    elif not is_hopper():
        return "the device is not of compute capability 9.0"
    elif -(-kh * kw * channels // (8 * vector)) < row.fields["split_k"]:
        return f"K = {kh * kw * channels} has fewer steps than split_k={row.fields['split_k']}"
    if channels == 0 or channels % vector or outputs % vector:
        return f"{channels} and {outputs} channels: both must be multiples of {vector}"
    if not row.fields.get("box"):
        return None
    return _reason_against_boxes(problem, problem.tiles[0] if tile is None else tile)


def _reason_against_boxes(problem: ConvProblem, tile: Pair) -> str | None:
    """Why 8 x 8 blocks of pixels cannot be loaded as boxes, or None."""
    geometry, channels = problem.geometry, problem.x_shape[3]
    whole = 128 // problem.itemsize
    narrow = 32 if problem.itemsize == 2 else None  # channels of a pixel of 64 bytes
    if problem.masked_input:
        return "boxes: the input is masked"
    if tuple(geometry.lhs_dilation) != (1, 1):
        return f"boxes: lhs_dilation={geometry.lhs_dilation}: they take 1"
    if any(side % 8 for side in problem.sides(tile)):
        return f"boxes: tile={tile}: its sides must be multiples of 8"
    if channels % whole and channels != narrow:
        few = "" if narrow is None else f"{narrow} and "
        return f"boxes: {channels} channels: they take {few}multiples of {whole}"
    if max(geometry.strides) > 8:
        return f"boxes: strides={geometry.strides}: they take up to 8"
    if 0 in problem.x_shape[1:3]:
        return "boxes: the input is empty"
    return None


def half_empty(row: Variant, outputs: int) -> bool:
    """Whether half of the columns of a tile, or more, would be past the last output channel."""
    columns = row.fields.get("tile_n", 0)
    return columns > 64 and 2 * outputs <= columns


def too_narrow(row: Variant, problem: ConvProblem) -> bool:
    """Whether this is mma.sync and x has so few channels that `direct` is preferred."""
    return bool(row.fields.get("mma")) and problem.x_shape[3] < mma_channels(problem.itemsize)
