"""Inputs of the challenge: digits resized and thresholded, or generated strokes where no data set
is at hand."""

import numpy as np

THRESHOLDS = {32: 184.632, 64: 188.71, 128: 191.003, 256: 192.538}


def challenge_inputs(images: np.ndarray, neurons: int) -> np.ndarray:
    """Images as the challenge takes them: resized, thresholded to 0 and 1, column-major.

    Args:
        images: uint8[count, height, width].
        neurons: 1024, 4096, 16384 or 65536.

    Returns:
        float32[count, neurons].

    Raises:
        ValueError: for another number of neurons, or images that have not three axes.
    """
    from scipy.signal import resample

    side = round(neurons**0.5)
    if side not in THRESHOLDS or side * side != neurons:
        raise ValueError(
            f"neurons={neurons} is none of {', '.join(str(s * s) for s in THRESHOLDS)}"
        )
    if images.ndim != 3:
        raise ValueError(f"images has shape {images.shape}; it takes [count, height, width]")
    out = np.empty((len(images), neurons), np.float32)
    for first in range(0, len(images), 2000):
        part = images[first : first + 2000].astype(np.float64)
        big = np.asarray(resample(resample(part, side, axis=1), side, axis=2))
        lit = (big > THRESHOLDS[side]).transpose(0, 2, 1)
        out[first : first + len(part)] = lit.reshape(len(part), neurons)
    return out


def strokes(count: int, seed: int = 0) -> np.ndarray:
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
