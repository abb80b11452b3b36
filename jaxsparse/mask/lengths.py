"""`lengths_mask`: ragged batches as masks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int

from jaxsparse.core.integers import as_int32, check_count
from jaxsparse.core.variables import takes_variables


@takes_variables
def lengths_mask(lengths: Int[ArrayLike, "*batch"], n: int) -> Bool[Array, "*batch n"]:
    """Which of `n` places each sequence fills: `arange(n) < lengths[..., None]`.

    Args:
        lengths: any integer dtype, any shape. They are data, so they raise no error: a length above
            n fills all n places (the sequence is cut to n), one below 0 fills none.
        n: the number of places, 0 or more.

    Returns:
        bool[*batch, n]: a `mask` for `masked_dense`, or with `[..., None]` and granularity
        (1, k) a mask of rows for `masked_matmul`.

    Raises:
        TypeError, ValueError: when `lengths` is not an integer array, or `n` not an int of 0 or
            more.
    """
    if not hasattr(lengths, "shape") or not hasattr(lengths, "dtype"):
        raise TypeError(f"lengths must be an array, not {type(lengths).__name__}")
    lengths = as_int32("lengths", lengths)
    n = check_count("n", n)
    places = jax.lax.broadcasted_iota(jnp.int32, (*lengths.shape, n), lengths.ndim)
    return places < lengths[..., None]
