"""`affected_index`: from a mask of edited pixels to an index for each resolution of the layers that
the edit goes through, in one custom call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jaxsparse.bits.pack import word_count
from jaxsparse.core.batching import kept
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ffi.fold import fold_lists
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.index.checks import SIDES, check_size, check_spatial_mask, check_tile, tile_code
from jaxsparse.index.compact import ListSpec
from jaxsparse.index.mask_list import lister
from jaxsparse.index.shards import Kind, split_lists
from jaxsparse.index.types import TileIndex, max_tiles
from jaxsparse.mask.reach import affected
from jaxsparse.reference.affected_index import Layers
from jaxsparse.reference.affected_index import affected_index as reference_affected
from jaxsparse.select import default_tile
from jaxsparse.select.explain import record

Pair = tuple[int, int]
MAX_STAGES = 4  # cuda/index/affected_index.h: kMaxAffected
_MOST_SHARED = 96 << 10  # bytes; kMostAffectedShared


class Axis(NamedTuple):
    """Pixel o of an axis is active where the mask has a pixel in [o*stride - pad, o*stride - pad +
    taps); `size` pixels.
    """

    taps: int
    stride: int
    pad: int
    size: int

    def then(self, taps: int, stride: int) -> "Axis":
        """What pixels of the next layer read: one window of windows."""
        if taps > 1 and self.taps < self.stride:
            raise ValueError(
                f"stages: a window of {taps} pixels that are {self.stride} pixels of the mask apart"
                f" and read {self.taps} each: it would leave pixels out between them"
            )
        low, _ = jax.lax.padtype_to_pads((self.size,), (taps,), (stride,), "SAME")[0]
        return Axis(
            (taps - 1) * self.stride + self.taps,
            stride * self.stride,
            low * self.stride + self.pad,
            -(-self.size // stride),
        )


class _Spec(NamedTuple):
    stages: tuple[tuple[tuple[Pair, Pair], ...], ...]
    axes: tuple[tuple[Axis, Axis], ...]
    tile: Pair
    implementation: Any


@takes_variables
def affected_index(
    mask: Bool[ArrayLike, "B H W"],
    stages: Sequence[Sequence[tuple[int | Pair, int | Pair]]],
    tile: Pair | None = None,
    *,
    implementation: Implementation = None,
) -> tuple[TileIndex, ...]:
    """List the tiles that an edit of an image reaches, at each resolution of a network.

    The result is that of `tile_index` on the masks that `js.mask.propagate` makes, one convolution
    after the other; on a GPU one launch makes all of it.

    Args:
        mask: bool[B, H, W], the pixels of the input that differ.
        stages: one to four, of the layers that share an index: (window, stride) of each, an int or
            a pair, padded "SAME". A stage begins where the one before ends. Its index lists where
            the result of its last layer can change, which covers its earlier layers of that
            resolution.
        tile: (height, width), each side 1, 2, 4, 8, 16 or 32; None lets the tuning table choose.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A `TileIndex` for each stage, with room for all tiles.

    Raises:
        TypeError, ValueError: for a wrong mask, tile or stage, naming the argument; for windows
            that leave out pixels between those they read (a stride above the window, then a larger
            window); and when a named implementation cannot run.
    """
    shape = check_spatial_mask(mask)
    tile = check_tile(default_tile() if tile is None else tile)
    if not {*tile} <= {*SIDES}:
        raise ValueError(f"tile={tile}; each side is one of {SIDES}")
    layers = _check_stages(stages)
    axes = tuple(_windows(shape, layers))
    for rows, columns in axes:
        check_size((shape[0], rows.size, columns.size), tile, "grid")
        _check_room(shape, rows, columns, tile)
    key = implementation_key(implementation)
    found = _list(jnp.asarray(mask), _Spec(layers, axes, tile, key))
    indices = []
    for t, (rows, columns) in enumerate(axes):
        words, ids, count, overflow = found[4 * t : 4 * t + 4]
        to = (shape[0], rows.size, columns.size)
        index = TileIndex(ids, count, overflow, words, tile, to, max_tiles(to, tile, "grid"))
        shapes = f"bool{list(shape)} -> {list(to)}, tile {tile[0]}x{tile[1]}"
        record("affected_index", shapes, plan("tile_index", implementation, NAMES), None, index)
        indices.append(index)
    return tuple(indices)


def _check_stages(stages: Any) -> tuple[tuple[tuple[Pair, Pair], ...], ...]:
    try:
        layers = tuple(
            tuple((_pair(window), _pair(stride)) for window, stride in stage) for stage in stages
        )
    except (TypeError, ValueError):
        raise TypeError(
            f"stages={stages!r}; it takes sequences of (window, stride), positive ints or pairs"
        ) from None
    if not 1 <= len(layers) <= MAX_STAGES:
        raise ValueError(f"stages has {len(layers)} entries; it takes 1 to {MAX_STAGES}")
    return layers


def _pair(value: Any) -> Pair:
    first, second = (value, value) if isinstance(value, (int, np.integer)) else value
    if min(first, second) < 1:
        raise ValueError(value)
    return int(first), int(second)


def _windows(shape: tuple[int, int, int], stages: Any) -> Any:
    """(rows, columns) of each stage, as windows over the mask."""
    rows, columns = (Axis(1, 1, 0, size) for size in shape[1:])
    for layers in stages:
        for window, stride in layers:
            rows, columns = rows.then(window[0], stride[0]), columns.then(window[1], stride[1])
        yield rows, columns


def _check_room(shape: tuple[int, int, int], rows: Axis, columns: Axis, tile: Pair) -> None:
    """What a row of tiles touches must fit in a block's shared memory: see AffectedShared."""
    touched = min((tile[0] - 1) * rows.stride + rows.taps, shape[1]) * word_count(shape[2])
    packed = max(touched, tile[0] * word_count(columns.size))
    need = 4 * (packed + tile[0] * word_count(shape[2]))
    if need > _MOST_SHARED or max(rows.taps, columns.taps, rows.stride, columns.stride) > 1 << 20:
        raise ValueError(
            f"stages: a row of tiles of {tile} touches {touched} words of a mask {list(shape)}; "
            f"with its own it may hold {_MOST_SHARED // 4}"
        )


@functools.partial(jax.jit, static_argnums=1)
def _list(mask: jax.Array, spec: _Spec) -> tuple[jax.Array, ...]:
    return tuple(x[0] for x in _lister(spec)(mask[None]))


@kept
def _lister(spec: _Spec) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """mask[L,B,H,W] -> words, ids, count, overflow of each stage, of L masks. Its vmap rule folds
    the batch axis into L.
    """

    def call(parts: int) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
        return dispatch(
            "tile_index",
            spec.implementation,
            cuda=functools.partial(_cuda, spec),
            cpu=functools.partial(_cpu, spec),
            reference=functools.partial(_reference, spec),
        )

    def run_here(mask: jax.Array) -> tuple[jax.Array, ...]:
        kinds: list[Kind] = ["words", "ids", "count", "overflow"] * len(spec.stages)
        return split_lists(["mask"], ["l b . ."], kinds, call)(mask)

    return fold_lists(run_here)


def _capacities(spec: _Spec, images: int) -> list[int]:
    return [max_tiles((images, r.size, c.size), spec.tile, "grid") for r, c in spec.axes]


def _reference(spec: _Spec, mask: jax.Array) -> tuple[jax.Array, ...]:
    capacities = _capacities(spec, mask.shape[1])
    return reference_affected(mask, stages=spec.stages, tile=spec.tile, capacities=capacities)


def _cpu(spec: _Spec, mask: jax.Array) -> tuple[jax.Array, ...]:
    """The masks by XLA's windows, their lists by the C++ handler."""
    lists, images, *hw = mask.shape
    seen = mask.reshape(lists * images, *hw)
    found = []
    for layers, capacity in zip(spec.stages, _capacities(spec, images), strict=True):
        for run in _runs(layers):
            seen = _affected_by(seen, run)
        as_list = ListSpec(seen.shape[2], spec.tile, capacity, False, "grid", ("cpu",))
        found += lister(as_list)(seen.reshape(lists, images, *seen.shape[1:]))
    return tuple(found)


def _runs(layers: Layers) -> list[list[tuple[Pair, Pair]]]:
    """The layers cut where one has a stride: those of stride 1 together are one large window."""
    runs: list[list[tuple[Pair, Pair]]] = []
    for layer in layers:
        if runs and layer[1] == runs[-1][-1][1] == (1, 1):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return runs


def _affected_by(mask: jax.Array, layers: Layers) -> jax.Array:
    """What `layers`, which read every pixel, change: one window."""
    axes = next(_windows((mask.shape[0], mask.shape[1], mask.shape[2]), [layers]))
    spans = [(axis.size - 1) * axis.stride + axis.taps - axis.pad for axis in axes]
    pads = [(a.pad, s - n) for a, s, n in zip(axes, spans, mask.shape[1:], strict=True)]
    if 0 in mask.shape:
        return jnp.zeros((mask.shape[0], axes[0].size, axes[1].size), bool)
    rows, columns = axes
    taps, strides = (rows.taps, columns.taps), (rows.stride, columns.stride)
    return affected(mask, taps, strides, (pads[0], pads[1]), 1)


def _cuda(spec: _Spec, mask: jax.Array) -> tuple[jax.Array, ...]:
    lists, images = mask.shape[:2]
    results: list[Any] = []
    attributes: dict[str, int] = {}
    items = 0
    code = tile_code(spec.tile)
    for t, ((rows, columns), capacity) in enumerate(
        zip(spec.axes, _capacities(spec, images), strict=True)
    ):
        results += [
            ((lists, images, rows.size, word_count(columns.size)), np.uint32),
            ((lists, capacity), np.int32),
            ((lists,), np.int32),
            ((lists,), np.bool_),
        ]
        items += max(images * -(-rows.size // spec.tile[0]), 1)
        for side, axis in (("h", rows), ("w", columns)):
            attributes |= {f"taps_{side}_{t}": axis.taps, f"stride_{side}_{t}": axis.stride}
            attributes[f"pad_{side}_{t}"] = axis.pad
        attributes |= {f"width_{t}": columns.size, f"tile_{t}": code}
    results.insert(0, ((lists * items,), np.int32))
    return tuple(
        ffi_call("jaxsparse_affected_index", results, mask, **attributes)[1:]  # pyright: ignore[reportArgumentType]
    )
