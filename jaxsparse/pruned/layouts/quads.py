"""Entries as streams of quads, padded run by run: what the data-driven executors on CUDA read."""

from typing import NamedTuple

import numpy as np

QUAD = 4


class Quads(NamedTuple):
    """Where entries lie in their streams.

    Attributes:
        of_run: int[runs]: quads of each run.
        first: int[runs + 1]: the quad at which each begins.
        entry: int[e]: the entries in the order of the stream.
        at: int[e]: the place of each of these.
        order: int32[places]: the entry at each place, -1 for padding.
    """

    of_run: np.ndarray
    first: np.ndarray
    entry: np.ndarray
    at: np.ndarray
    order: np.ndarray


def place_in_quads(run: np.ndarray, runs: int) -> Quads:
    """Place entries run by run, in their order within a run, each run padded to whole quads.

    Args:
        run: int[e], the run of each entry.
        runs: how many there are.
    """
    counts = np.bincount(run, minlength=runs)
    of_run = -(-counts // QUAD)
    first = np.concatenate([[0], np.cumsum(of_run)])
    entry = np.argsort(run, kind="stable")
    rank = np.arange(len(run)) - np.concatenate([[0], np.cumsum(counts)])[run[entry]]
    at = first[run[entry]] * QUAD + rank
    places = max(1, int(first[-1])) * QUAD  # a warp without entries reads the first quad
    order = np.full(places, -1, np.int32)
    order[at] = entry
    return Quads(of_run, first, entry, at, order)
