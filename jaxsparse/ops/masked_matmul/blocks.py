"""The masks of `masked_matmul`: their checks, and products that share an operand taken as one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxsparse.core.checks import as_array, check_array
from jaxsparse.core.integers import check_static, static_int
from jaxsparse.ops.masked_matmul.params import Block, Blocks


@dataclasses.dataclass(frozen=True)
class BlockCount:
    """For `js.explain`: blocks of all masks, and how many are set."""

    n_tiles: int
    count: jax.Array
    overflow: bool = False


#: Shares that stand for those below a twentieth: fine masks are worth it from different ones on.
_SMALL = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05)


def granularities(granularity: object) -> Blocks:
    """The block sizes of the masks of a, b and the result.

    Raises:
        TypeError, ValueError: for what is not a pair of positive ints, or a key that does not
            exist.
    """
    if isinstance(granularity, Mapping):
        unknown = set(granularity) - {"a", "b", "out"}
        if unknown:
            raise ValueError(
                f"granularity has the keys {sorted(unknown, key=repr)}; it takes 'a', 'b', 'out'"
            )
        a, b, out = (_pair(granularity.get(name, (1, 1))) for name in ("a", "b", "out"))
        return a, b, out
    block = _pair(granularity)
    return block, block, block


def _pair(value: object) -> Block:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"granularity takes two ints (rows, columns), not {value!r}")
    for size in value:
        check_static("granularity", size)
    try:
        rows, columns = map(static_int, value)
    except TypeError:
        raise TypeError(f"granularity takes two ints (rows, columns), not {value!r}") from None
    if not (1 <= rows < 2**31 and 1 <= columns < 2**31):
        raise ValueError(
            f"granularity={(rows, columns)}; a block has 1 to 2^31 - 1 rows and columns"
        )
    return rows, columns


def check_density(value: object) -> float | None:
    """`value`, None or a number from 0 to 1, rounded to a twentieth; less than that, to one of
    `_SMALL`. More than 0 stays more.

    Raises:
        TypeError, ValueError: for anything else.
    """
    if value is None:
        return None
    check_static("density", value)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"density={value!r}; it takes None or a number that is known when traced")
    if not 0 <= value <= 1:
        raise ValueError(f"density={value!r}; it takes a share, from 0 to 1")
    twentieths = round(20 * float(value))
    if value == 0 or (twentieths > 0 and value >= _SMALL[-1]):
        return twentieths / 20
    return min(_SMALL, key=lambda small: abs(small - float(value)))


def check_mask(name: str, mask: ArrayLike | None, size: Block, block: Block) -> jax.Array | None:
    """`mask` as an array, one bool a block of a matrix of `size`.

    Raises:
        TypeError, ValueError: for another type, dtype or shape.
    """
    if mask is None:
        return None
    check_array(name, mask)
    mask = as_array(name, mask)
    if mask.dtype != np.bool_:
        raise TypeError(f"{name} has dtype {mask.dtype}; it takes bool: `{name} != 0` makes one")
    needs = tuple(-(-n // g) for n, g in zip(size, block, strict=True))
    if mask.shape[-2:] != needs:
        raise ValueError(
            f"{name} has shape {mask.shape}; blocks of {block} in {size} need "
            f"[..., {needs[0]}, {needs[1]}]"
        )
    return mask


def share(arrays: list[Any], blocks: Blocks) -> list[Any]:
    """(a, b, a_mask, b_mask, out_mask) with the products that share b and its mask folded into one
    taller product.

    Only where no block has rows of two products: m is a multiple of the blocks' rows, or the mask
    is absent.
    """
    a, b, a_mask, b_mask, out_mask = arrays
    lists, m = a.shape[:2]
    pairs = ((a_mask, blocks[0][0]), (out_mask, blocks[2][0]))
    whole = all(mask is None or m % rows == 0 for mask, rows in pairs)
    if lists <= 1 or b.shape[0] != 1 or not whole or (b_mask is not None and b_mask.shape[0] != 1):
        return arrays

    def fold(value: jax.Array | None) -> jax.Array | None:
        if value is None:
            return None
        value = jnp.broadcast_to(value, (lists, *value.shape[1:]))
        return value.reshape(lists * value.shape[1], value.shape[2])[None]

    return [fold(a), b, fold(a_mask), b_mask, fold(out_mask)]
