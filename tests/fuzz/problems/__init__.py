"""Random problems of each operation. Equal (op, seed, number) give equal problems."""

import zlib
from collections.abc import Callable

import numpy as np

from fuzz.problem import Draw, Problem
from fuzz.problems import (
    attention,
    convolutions,
    experts,
    frozen,
    indices,
    positions,
    products,
)

OPS: dict[str, Callable[[Draw], Problem]] = {
    **attention.OPS,
    **convolutions.OPS,
    **experts.OPS,
    **frozen.OPS,
    **indices.OPS,
    **positions.OPS,
    **products.OPS,
}


def draw(op: str, seed: int, number: int) -> tuple[Problem, Draw]:
    """The problem, and what goes on drawing from there.

    Raises:
        KeyError: for an op that is not one of OPS.
    """
    drawn = Draw(np.random.default_rng([seed, number, zlib.crc32(op.encode())]))
    return OPS[op](drawn), drawn
