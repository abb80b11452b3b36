"""`reach_index`: from the words of an output's mask to the list of the input pixels that it reads,
in one custom call.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, UInt32

from jaxsparse.bits.pack import word_count
from jaxsparse.core.batching import kept
from jaxsparse.core.geometry import Window
from jaxsparse.ffi import Implementation, absent, dispatch, ffi_call
from jaxsparse.ffi.fold import fold_lists
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.index.checks import check_size
from jaxsparse.index.mask_list import PORTFOLIO_SCRATCH, WordsAndLists
from jaxsparse.index.shards import Kind, split_lists
from jaxsparse.index.types import TileIndex, max_tiles
from jaxsparse.reference.reach_index import reach_index as reference_reach

Pair = tuple[int, int]
TILE = (1, 1)
#: Of a window, and on a GPU what both sizes of an axis, the window and its pad come to together, as
#: the handlers take it (contracts/index.toml).
MOST_SIDE, MOST_REACH = 2**16, 2**30


class _Spec(NamedTuple):
    window: Window
    out_width: int
    in_hw: Pair
    implementation: Any


def reach_index(
    words: UInt32[Array, "B Ho words"],
    window: Window,
    out_width: int,
    in_hw: Pair,
    keep: UInt32[Array, "B H words"] | None = None,
    implementation: Implementation = None,
) -> TileIndex:
    """List the input pixels that some active output pixel reads.

    Args:
        words: uint32[B, Ho, ceil(out_width/32)], a mask of the output as `pack_mask` wrote it.
        window: of the convolution; in each axis one of stride and lhs_dilation is 1.
        out_width: of the output.
        in_hw: (H, W) of the input.
        keep: uint32[B, H, ceil(W/32)], leaves out all other pixels; None keeps all.
        implementation: as in `tile_index`.

    Returns:
        A `TileIndex` of single pixels, of shape (B, H, W), with room for all.

    Raises:
        ValueError: for more pixels than int32 can count, and when a named implementation cannot
            run.
    """
    shape = (words.shape[0], *in_hw)
    check_size(shape, TILE, "grid")
    given = words[None], *(() if keep is None else (keep[None],))
    found = _lister(_Spec(window, out_width, in_hw, implementation_key(implementation)))(*given)
    packed, ids, count, overflow = (x[0] for x in found)
    return TileIndex(ids, count, overflow, packed, TILE, shape, max_tiles(shape, TILE, "grid"))


@kept
def _lister(spec: _Spec) -> Callable[..., WordsAndLists]:
    """words[L,B,Ho,Wo/32] and, maybe, keep[L,B,H,W/32] -> L lists. Its vmap rule folds the batch
    axis into L.
    """

    def call(parts: int) -> Callable[..., tuple[jax.Array, ...]]:
        return dispatch(
            "tile_index",
            spec.implementation,
            cuda=functools.partial(_native, spec, PORTFOLIO_SCRATCH),
            cpu=functools.partial(_native, spec, 0),
            reference=functools.partial(_reference, spec),
        )

    def run_here(*operands: jax.Array) -> tuple[jax.Array, ...]:
        kinds: tuple[Kind, ...] = ("words", "ids", "count", "overflow")
        names = ("mask", "keep")[: len(operands)]
        return split_lists(names, ["l b . ."] * len(names), kinds, call)(*operands)

    return fold_lists(run_here)


def _reference(
    spec: _Spec, words: jax.Array, keep: jax.Array | None = None
) -> tuple[jax.Array, ...]:
    return reference_reach(
        words, keep, window=spec.window, out_width=spec.out_width, in_hw=spec.in_hw
    )


def _check_window(spec: _Spec, out_height: int, *, on_gpu: bool) -> None:
    """Refuse a window that the handlers do not take.

    Raises:
        ValueError: naming the argument of the convolution.
    """
    window, out_hw = spec.window, (out_height, spec.out_width)
    if max(window.taps) > MOST_SIDE:
        raise ValueError(
            f"kernel has a window of {window.taps[0]}x{window.taps[1]}; the gradient of x takes "
            f'{MOST_SIDE} a side, or any with implementation="reference"'
        )
    for axis in (0, 1) if on_gpu else ():
        reach = (
            (spec.in_hw[axis] + 32) * window.lhs_dilation[axis]
            + out_hw[axis] * window.strides[axis]
            + window.taps[axis] * window.dilation[axis]
            + abs(window.pads[axis])
        )
        if reach >= MOST_REACH:
            raise ValueError(
                f"x has {spec.in_hw[axis]} pixels along axis {1 + axis}, and the result "
                f"{out_hw[axis]}: with the window and its padding {reach}; on a GPU the gradient "
                f"of x takes fewer than {MOST_REACH}"
            )


def _native(
    spec: _Spec, scratch: int, words: jax.Array, keep: jax.Array | None = None
) -> tuple[jax.Array, ...]:
    lists, images = words.shape[:2]
    height, width = spec.in_hw
    window = spec.window
    _check_window(spec, words.shape[2], on_gpu=scratch > 0)
    packed, ids, count, overflow, _ = ffi_call(
        "jaxsparse_reach_index",
        [
            ((lists, images, height, word_count(width)), np.uint32),
            ((lists, images * height * width), np.int32),
            ((lists,), np.int32),
            ((lists,), np.bool_),
            ((scratch,), np.int32),
        ],
        words,
        absent(keep, np.uint32),
        width=width,
        out_width=spec.out_width,
        kernel_h=window.taps[0],
        kernel_w=window.taps[1],
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        pad_top=window.pads[0],
        pad_left=window.pads[1],
        dilation_h=window.dilation[0],
        dilation_w=window.dilation[1],
        lhs_dilation_h=window.lhs_dilation[0],
        lhs_dilation_w=window.lhs_dilation[1],
        tile=0,
    )
    return packed, ids, count, overflow
