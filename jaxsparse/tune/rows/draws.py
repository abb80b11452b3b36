"""Data drawn at a density for ops without a `TileIndex`: masks of blocks, sizes of groups,
activations. An op that is not here is measured on what a run gave it alone.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsparse.select.problem import Problem

#: (problem, operands, density, rng) -> other operands, and their count.
Draw = Callable[[Problem, tuple[Any, ...], float, np.random.Generator], tuple[tuple[Any, ...], int]]


def masked_matmul(
    problem: Problem, operands: tuple[Any, ...], density: float, rng: np.random.Generator
) -> tuple[tuple[Any, ...], int]:
    """Blocks at random in each mask."""
    a, b, *masks = operands
    drawn = [None if m is None else rng.random(m.shape) < density for m in masks]
    count = sum(int(m.sum()) for m in drawn if m is not None)
    return (a, b, *(None if m is None else jnp.asarray(m) for m in drawn)), count


def grouped_matmul(
    problem: Problem, operands: tuple[Any, ...], density: float, rng: np.random.Generator
) -> tuple[tuple[Any, ...], int]:
    """A share of the rows, in groups of uneven sizes (Zipf)."""
    lhs, rhs, sizes, *others = operands
    rows, groups = round(density * problem.n_tiles), sizes.shape[0]
    shares = rng.permutation(1.0 / np.arange(1, groups + 1))
    drawn = rng.multinomial(rows, shares / shares.sum()) if groups else np.zeros(0)
    return (lhs, rhs, jnp.asarray(drawn, sizes.dtype), *others), rows if groups else 0


def sparse_ffn(
    problem: Problem, operands: tuple[Any, ...], density: float, rng: np.random.Generator
) -> tuple[tuple[Any, ...], int]:
    """Activations of which a share is not zero."""
    a, b = operands
    there = rng.random(a.shape) < density
    values = np.where(there, np.abs(rng.standard_normal(a.shape)) + 0.5, 0.0)
    return (jnp.asarray(values, a.dtype), b), int(there.sum())


_DRAWS: Mapping[str, Draw] = {
    "masked_matmul": masked_matmul,
    "grouped_matmul": grouped_matmul,
    "sparse_ffn": sparse_ffn,
}


def draw_for(problem: Problem, operands: tuple[Any, ...], *, known: bool) -> Draw | None:
    """How data of this problem is drawn, or None. `known`: the operands' indices are real."""
    if problem.op == "grouped_matmul" and not known and any(o is not None for o in operands[3:5]):
        return None  # gather and scatter name rows that exist
    if problem.op == "sparse_ffn" and len(operands) != 2:
        return None  # of few tokens: the activations are inside of the call
    return _DRAWS.get(problem.op)
