"""Hashes of the rows of a sparse matrix, all at once."""

import numpy as np


def mix(keys: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words that spreads every bit."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def running_sums(keys: np.ndarray) -> np.ndarray:
    """uint64[n + 1], modulo 2^64: the sum over a row is the difference of two."""
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
