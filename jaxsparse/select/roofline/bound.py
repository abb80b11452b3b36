"""A lower bound on the time of a kernel, and which of many kernels are worth measuring.

The analytic bound of DynaSpa 3.3: the launch, and the larger of the time for the bytes and the time
for the waves of compute tiles. It ranks kernels; a measurement decides among the best.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxsparse.select.roofline.machine import Machine

#: How many kernels the bound keeps: a share of all, and at least this number.
SHARE, LEAST = 0.001, 32


def bound(
    machine: Machine, moved: float, waves: float, tile_us: float, *, streams: bool = False
) -> float:
    """The least time of a kernel, in microseconds.

    Args:
        machine: the device that it runs on.
        moved: bytes between memory and the chip, each counted once.
        waves: compute tiles, divided by the number that the device runs at once.
        tile_us: microseconds of one compute tile.
        streams: all processors share the last wave (stream-K), so a fraction of a wave takes that
            fraction of its time.
    """
    rounds = waves if streams else math.ceil(waves)
    return machine.launch + max(moved / machine.copy, rounds * tile_us)


def kept(bounds: Sequence[float], share: float = SHARE, least: int = LEAST) -> list[int]:
    """The positions of the kernels that are worth measuring, the lowest bound first: `share` of
    all, and at least `least`.

    Raises:
        ValueError: for a bound that is NaN.
    """
    values = np.asarray(bounds, np.float64)
    if np.isnan(values).any():
        raise ValueError("bounds: there is a NaN")
    most = max(least, math.ceil(share * len(values)))
    return [int(i) for i in np.argsort(values, kind="stable")[:most]]
