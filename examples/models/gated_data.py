"""Handwritten digits on a 32x32 canvas: scikit-learn's, or MNIST from $JAXSPARSE_DATA/mnist.npz."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class Digits(NamedTuple):
    """Images f32[n,32,32,1] in [0,1] and labels i32[n], to train on and to test on."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(seed: int = 0) -> Digits:
    """MNIST where JAXSPARSE_DATA holds it, else scikit-learn's 1,797 digits, a fifth to test on.

    Raises:
        FileNotFoundError: when JAXSPARSE_DATA is set and has no mnist.npz.
    """
    folder = os.environ.get("JAXSPARSE_DATA")
    if folder:
        with np.load(Path(folder) / "mnist.npz") as file:
            train, test = file["train_images"], file["test_images"]
            labels = file["train_labels"].astype(np.int32), file["test_labels"].astype(np.int32)
        return Digits("MNIST", _canvas(train / 255), labels[0], _canvas(test / 255), labels[1])
    images, labels = load_digits(return_X_y=True)
    large = ndimage.zoom(images.reshape(-1, 8, 8) / 16, (1, 3, 3), order=1)
    train, test, train_labels, test_labels = train_test_split(
        _canvas(large), labels.astype(np.int32), test_size=0.2, random_state=seed, stratify=labels
    )
    return Digits("scikit-learn's digits", train, train_labels, test, test_labels)


def _canvas(images: np.ndarray) -> np.ndarray:
    """[n,h,w] in the middle of f32[n,32,32,1]."""
    low = [(32 - n) // 2 for n in images.shape[1:]]
    high = [32 - n - p for n, p in zip(images.shape[1:], low, strict=True)]
    padded = np.pad(images, ((0, 0), (low[0], high[0]), (low[1], high[1])))
    return padded.astype(np.float32)[..., None]


def shifted(images: np.ndarray, rng: np.random.Generator, most: int = 2) -> np.ndarray:
    """The images, moved together by at most `most` pixels."""
    return np.roll(images, rng.integers(-most, most + 1, 2), (1, 2))
