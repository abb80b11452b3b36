"""Inputs of the challenge: digits resized and thresholded, or generated strokes where no data set
is available."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from jaxsparse.core.device import cores

_PART = 250  # images at a time
THRESHOLDS = {32: 184.632, 64: 188.71, 128: 191.003, 256: 192.538}


_Scalar = TypeVar("_Scalar", bound=np.generic)


@overload
def challenge_inputs(images: NDArray[np.uint8], neurons: int) -> NDArray[np.float32]: ...


@overload
def challenge_inputs(
    images: NDArray[np.uint8], neurons: int, dtype: type[_Scalar] | np.dtype[_Scalar]
) -> NDArray[_Scalar]: ...


@overload
def challenge_inputs(
    images: NDArray[np.uint8], neurons: int, dtype: type[bool]
) -> NDArray[np.bool_]: ...


def challenge_inputs(
    images: NDArray[np.uint8], neurons: int, dtype: npt.DTypeLike = np.float32
) -> np.ndarray:
    """Images as the challenge takes them: resized, thresholded to 0 and 1, column-major.

    Args:
        images: uint8[count, height, width].
        neurons: 1024, 4096, 16384 or 65536.
        dtype: of the result; bool is a quarter of float32 to move about.

    Returns:
        dtype[count, neurons].

    Raises:
        ValueError: for another number of neurons, or images that have not three axes.
        TypeError: for images that are not uint8: the thresholds are on that scale.
    """
    from scipy.signal import resample

    side = round(neurons**0.5)
    if side not in THRESHOLDS or side * side != neurons:
        raise ValueError(
            f"neurons={neurons} is not one of {', '.join(str(s * s) for s in THRESHOLDS)}"
        )
    if images.ndim != 3:
        raise ValueError(f"images has shape {images.shape}; it takes [count, height, width]")
    if images.dtype != np.uint8:
        raise TypeError(f"images has dtype {images.dtype}; it takes uint8")
    # Resampling is linear in each axis.
    down, across = (np.asarray(resample(np.eye(n), side, axis=0)) for n in images.shape[1:])
    out = np.empty((len(images), neurons), dtype)

    def fill(first: int) -> None:
        part = images[first : first + _PART].astype(np.float64)
        big = np.matmul(across, np.matmul(down, part).transpose(0, 2, 1))
        out[first : first + len(part)] = (big > THRESHOLDS[side]).reshape(len(part), neurons)

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(fill, range(0, len(images), _PART)))
    return out


def strokes(count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Generated images with the look of digits: a few thick curved strokes.

    Args:
        count: how many.
        seed: of the generator.

    Returns:
        uint8[count, 28, 28].
    """
    rng = np.random.default_rng(seed)
    images = np.zeros((count, 28, 28), np.uint8)
    t = np.linspace(0, 1, 40)[:, None]
    for image in images:
        for _ in range(rng.integers(1, 4)):
            a, b, c = rng.uniform(4, 22, (3, 2))
            curve = ((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c).astype(int)
            for dy, dx in np.ndindex(3, 3):
                image[curve[:, 0] + dy, curve[:, 1] + dx] = 255
    return images
