"""What `js.explain` and `js.checked` see of the data of a grouped product."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.reference.grouped_matmul import clip_sizes, counted_rows, owned_rows
from jaxsparse.select.config import settings


@dataclasses.dataclass(frozen=True)
class RowCount:
    """How many of the sorted rows count: a group owns them, and their indices are in range;
    `overflow`: groups reach past the last one, or one is negative.
    """

    n_tiles: int
    count: jax.Array
    overflow: jax.Array
    fault = (
        "group_sizes reached past the last sorted row, or one was negative: they were cut to fit"
    )

    @staticmethod
    def of(group_sizes: jax.Array, rows: int, *indices: tuple[Any, int]) -> "RowCount":
        """From group_sizes int32[g], and indices as `counted_rows` takes them."""
        counted = counted_rows(group_sizes, rows, *indices)
        cut = clip_sizes(group_sizes, rows) != group_sizes
        return RowCount(rows, counted.sum(dtype=np.int32), cut.any())


def check_rows(
    lhs_rows: int,
    out_rows: int,
    group_sizes: jax.Array,
    gather: jax.Array | None,
    scatter: jax.Array | None,
    rows: int,
) -> None:
    """Under `js.checked()`: raise for group sizes and indices that the op would leave out."""
    if not settings().checked:
        return
    owned = owned_rows(group_sizes, rows)
    pairs = (("gather", gather, lhs_rows), ("scatter", scatter, out_rows))
    wild = {
        name: (((value < 0) | (value >= limit)) & owned).sum()
        for name, value, limit in pairs
        if value is not None
    }

    def raise_if(sizes: np.ndarray, wild: dict[str, np.ndarray]) -> None:
        sizes = np.asarray(sizes, np.int64)
        if (sizes < 0).any() or sizes.sum() > rows:
            more = " or more" if (sizes == 2**31 - 1).any() else ""  # clipped to int32
            raise ValueError(
                f"grouped_matmul: group_sizes sum to {sizes.sum()}{more} (smallest {sizes.min()}) "
                f"over {rows} sorted rows"
            )
        for name, count in wild.items():
            if count:
                raise ValueError(f"grouped_matmul: {name} has {count} indices out of range")

    raise_on_host(raise_if, group_sizes, wild)
