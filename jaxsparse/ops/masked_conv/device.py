"""The one call of `masked_conv` whose kernel chooses among candidates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.activations import CODES
from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.index import TileIndex
from jaxsparse.index.checks import tile_code
from jaxsparse.index.chosen import ChosenIndex, lists_of
from jaxsparse.ops.masked_conv import native as masked_conv_native
from jaxsparse.ops.masked_conv.native import arrays, attributes, sizes
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.costs import EVERY, Candidate, rows_of
from jaxsparse.select.variants import table

_EVERY_BYTE = 255


def forward(
    p: ConvParams,
    platform: str,
    candidates: tuple[Candidate, ...],
    *given: Any,
    pick: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """One forward call, with these `Operands`, of the candidate that `pick` says, by the count;
    None: of the cheapest. The base becomes the result.
    """
    operands = Operands(*given)
    x, kernel, index, base = operands.x, operands.kernel, operands.tiles, operands.base
    out = (*index.shape, kernel.shape[3])
    lists = lists_of(index)[: 1 + max((c.list for c in candidates), default=0)]
    call: dict[str, int] = {
        "lhs_dilation_h": p.geometry.lhs_dilation[0],
        "lhs_dilation_w": p.geometry.lhs_dilation[1],
        "activation": CODES[p.activation],
        "variants": _bytes([c.number for c in candidates]),
        "lists": _bytes([_EVERY_BYTE if c.list == EVERY else c.list for c in candidates]),
        "tiles": sum(tile_code(like.tile) << (8 * t) for t, like in enumerate(lists) if t),
        **attributes(p, index),
    }
    return ffi_call(
        "jaxsparse_masked_conv_device",
        [
            (out, p.out_dtype),
            ((_workspace(p, platform, candidates, x, kernel, index),), np.uint8),
        ],
        *arrays(p, platform, operands),
        choice_of(index, candidates) if pick is None else pick(index.count),
        jnp.asarray(rows_of(candidates)),
        *(array for like in lists[1:] for array in (like.ids, like.count)),
        input_output_aliases=None if base is None else {7: 0},
        **call,  # pyright: ignore[reportArgumentType]
    )[0]


def choice_of(index: TileIndex, candidates: tuple[Candidate, ...]) -> jax.Array:
    """int32[] where the index was built with a choice among these candidates, else int32[0]."""
    if isinstance(index, ChosenIndex) and index.candidates == candidates:
        return index.choice
    return absent(None, np.int32)


def _workspace(
    p: ConvParams,
    platform: str,
    candidates: tuple[Candidate, ...],
    x: Shaped,
    kernel: Shaped,
    index: TileIndex,
) -> int:
    if platform == "cpu":
        row = next(iter(table("masked_conv", platform).values()))
        return masked_conv_native.workspace(p, platform, row, x, kernel, index)
    geometry = sizes(p, x.shape, kernel.shape, index.shape[1:])
    numbers = [c.number for c in candidates]
    ask = native(platform).masked_conv_device_workspace
    return ask(geometry, DTYPES[x.dtype.name], numbers)


def _bytes(values: list[int]) -> int:
    """Byte i is values[i], as int64."""
    packed = sum(v << (8 * i) for i, v in enumerate(values))
    return packed - (1 << 64) if packed >> 63 else packed
