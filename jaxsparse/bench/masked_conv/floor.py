"""The floor of a masked convolution: what the bytes and the operations of its active pixels cost on
a machine whose rates were measured.
"""

import dataclasses
import math

import numpy as np

from jaxsparse.testing import ConvCase


@dataclasses.dataclass(frozen=True)
class Machine:
    """Measured rates of a device: bytes a second of a copy, operations a second by dtype."""

    bytes_per_second: float
    flops_per_second: dict[str, float]


#: An H200: a large copy, dense products of 8192 (bfloat16, TF32).
H200 = Machine(4.3e12, {"bfloat16": 790e12, "float16": 790e12, "float32": 414e12})


def reached(case: ConvCase, mask: np.ndarray) -> np.ndarray:
    """bool[B, H, W]: the input pixels that a tap of an active output pixel reads.

    Args:
        case: the convolution.
        mask: bool[B, Ho, Wo], its active outputs.
    """
    (top, _), (left, _) = case.geometry.padding
    (sh, sw), (dh, dw) = case.strides, case.dilation
    rows, columns = sh * (mask.shape[1] - 1) + 1, sw * (mask.shape[2] - 1) + 1
    # A frame wide enough for every tap, whether the padding adds to the image or cuts from it.
    y0, x0 = max(top, 0), max(left, 0)
    height = y0 - top + max(dh * (case.kernel[0] - 1) + rows, case.height + max(top, 0))
    width = x0 - left + max(dw * (case.kernel[1] - 1) + columns, case.width + max(left, 0))
    seen = np.zeros((case.batch, height, width), bool)
    for ky in range(case.kernel[0]) if mask.size else ():
        for kx in range(case.kernel[1]):
            y, x = ky * dh - top + y0, kx * dw - left + x0
            seen[:, y : y + rows : sh, x : x + columns : sw] |= mask
    return seen[:, y0 : y0 + case.height, x0 : x0 + case.width]


def floor_us(case: ConvCase, dtype: str, mask: np.ndarray, machine: Machine = H200) -> float:
    """Microseconds below which no call can be: the larger of two times.

    Bytes: the input pixels that the mask reaches and the weights once, and the whole result, zeros
    included. Operations: two a multiply-add, of every tap of every active pixel.

    Args:
        case: the convolution.
        dtype: "bfloat16", "float16" or "float32" (TF32).
        mask: bool[B, Ho, Wo].
        machine: its rates.

    Raises:
        KeyError: for a dtype whose rate is not known.
    """
    size = 4 if dtype == "float32" else 2
    read = int(reached(case, mask).sum()) * case.channels + math.prod(case.kernel_shape)
    written = math.prod(case.mask_shape) * case.outputs
    moved = size * (read + written) / machine.bytes_per_second
    return 1e6 * max(moved, flops(case, mask) / machine.flops_per_second[dtype])


def flops(case: ConvCase, mask: np.ndarray) -> float:
    """Operations of the active pixels, taps outside of the image included."""
    return 2.0 * int(mask.sum()) * math.prod(case.kernel_shape)
