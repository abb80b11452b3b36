"""Indices: what they list, in what order, and what they hold where there is too little room."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits


def listed(found: np.ndarray, room: int) -> np.ndarray:
    """In a list of this room, -1 after the last."""
    out = np.full((room, *found.shape[1:]), -1, np.int32)
    out[: min(len(found), room)] = found[:room]
    return out


def shown(index: Any) -> Any:
    """What is compared of an index."""
    whole = () if index.align == "component" else (index.tile_mask(),)
    return index.ids, index.count, index.overflow, index.to_mask(), index.cover(), *whole


def settled(ids: Any, ordered: bool, draw: Draw) -> np.ndarray:
    """What is compared of a list: it is sorted if its order is free. Each shard of a mesh has room
    of its own, so -1 may stand between their tiles.
    """
    ids = np.asarray(ids)
    if not ordered:
        return np.sort(ids.astype(np.uint32)).astype(np.int32)
    empty = ids.reshape(len(ids), -1)[:, 0] < 0
    return ids[np.argsort(empty, kind="stable")] if draw.way == "mesh" else ids


def tile_index(draw: Draw) -> Problem:
    """On the grid: complete, cut off, of words, and the entries of a stack of indices."""
    shape, tile = (draw.lead(4), draw.size(40), draw.size(90)), draw.pair(20)
    grid = tuple(-(-n // t) for n, t in zip(shape[1:], tile, strict=True))
    every = shape[0] * grid[0] * grid[1]
    # Which tiles are left out is free, but for an ordered list.
    capacity = draw.size(every + 3) if draw.chance(0.3) else None
    ordered = capacity is not None or draw.chance(0.5)
    room, form = min(capacity or every, every), draw.pick("mask", "mask", "words", "stack")
    options = {"capacity": capacity, "ordered": ordered}

    def call(mask: Any) -> Any:
        if form == "words":
            past = jnp.uint32(1) << 31 if shape[2] % 32 else jnp.uint32(0)
            words = js.pack_mask(mask)
            words = words.at[..., -1].set(words[..., -1] | past)
            return shown(js.TileIndex.from_words(words, shape[2], tile, **options))
        if form == "stack":
            both = jax.vmap(lambda m: js.tile_index(m, tile, **options))(jnp.stack([~mask, mask]))
            return shown(jax.tree.map(lambda v: v[1], both))
        return shown(js.tile_index(mask, tile, **options))

    def meaning(mask: np.ndarray) -> Any:
        b, y, x = np.nonzero(mask)
        ids = np.unique((b * grid[0] + y // tile[0]) * grid[1] + x // tile[1])
        seen = np.zeros(every, bool)
        seen[ids[:room]] = True
        tiles = seen.reshape(shape[0], *grid)
        cover = mask & oracle.spread(tiles, tile, shape[1:])
        count, lost = np.int32(len(ids)), np.bool_(len(ids) > room)
        return listed(ids, room), count, lost, mask, cover, tiles

    def seen(found: Any) -> Any:
        return settled(found[0], ordered, draw), *found[1:]

    text = f"{shape} by {tile}, {options}, of {form}"
    data = lambda rng: {"mask": bits(rng, shape)}  # noqa: E731
    split, whole = {"mask": 0}, room == every  # a list with less room is one of all images
    return Problem(text, call, meaning, {}, 1, data, split=split, explicit=whole, seen=seen)


def component_index(draw: Draw) -> Problem:
    """Tiles of connected components, in ascending order."""
    shape, tile = (draw.lead(3), draw.size(24), draw.size(40)), draw.pair(9)
    room = js.tile_index(np.zeros(shape, bool), tile, align="component").capacity
    capacity = draw.size(room) if draw.chance(0.3) else None

    def call(mask: Any) -> Any:
        made = js.tile_index(mask, tile, align="component", ordered=True, capacity=capacity)
        return shown(made)

    def meaning(mask: np.ndarray) -> Any:
        found, cover, most = [], np.zeros(shape, bool), capacity or room
        for b, image in enumerate(mask):
            labels, _ = ndimage.label(image, np.ones((3, 3)))
            boxes, seen = ndimage.find_objects(labels), set()
            for y, x in np.argwhere(image):
                top, left = (s.start for s in boxes[labels[y, x] - 1])
                y0, x0 = (
                    top + (y - top) // tile[0] * tile[0],
                    left + (x - left) // tile[1] * tile[1],
                )
                if (labels[y, x], y0, x0) not in seen:
                    seen.add((labels[y, x], y0, x0))
                    found.append((b, y0, x0))
        ids = np.asarray(found, np.int32).reshape(-1, 3)
        for b, y0, x0 in ids[:most]:
            at = (b, slice(y0, y0 + tile[0]), slice(x0, x0 + tile[1]))
            cover[at] |= mask[at]
        count, lost = np.int32(len(ids)), np.bool_(len(ids) > most)
        return listed(ids, most), count, lost, mask, cover

    def seen(found: Any) -> Any:
        return settled(found[0], True, draw), *found[1:]

    text = f"{shape} by {tile}, capacity {capacity}"
    data = lambda rng: {"mask": bits(rng, shape)}  # noqa: E731
    split, whole = {"mask": 0}, capacity in (None, room)
    return Problem(text, call, meaning, {}, 1, data, split=split, explicit=whole, seen=seen)


def affected_index(draw: Draw) -> Problem:
    """Of one to three stages; windows that leave nothing out."""
    shape, tile = (
        (draw.lead(3), draw.size(30), draw.size(60)),
        (2 ** draw.size(4), 2 ** draw.size(4)),
    )
    stages = []
    for _ in range(draw.size(3)):
        layers = [(draw.size(5), 1) for _ in range(draw.size(2))]
        stages.append([*layers, (2 + draw.size(2), 2)] if draw.chance(0.5) else layers)

    def call(mask: Any) -> Any:
        found = js.affected_index(mask, stages, tile)
        return [(i.ids, i.count, i.overflow, i.to_mask()) for i in found]

    def seen(found: Any) -> Any:
        return [(settled(ids, False, draw), *rest) for ids, *rest in found]

    def meaning(mask: np.ndarray) -> Any:
        made = []
        for layers in stages:
            for window, stride in layers:
                out = [-(-n // stride) for n in mask.shape[1:]]
                pads = tuple(
                    (max((o - 1) * stride + window - n, 0) // 2, window + stride)
                    for o, n in zip(out, mask.shape[1:], strict=True)
                )
                wide = oracle.reached(mask, (window, window), ((stride,) * 2, pads, (1, 1)))
                mask = wide[:, : out[0], : out[1]]
            rows, cols = (-(-n // t) for n, t in zip(mask.shape[1:], tile, strict=True))
            b, y, x = np.nonzero(mask)
            ids = np.unique((b * rows + y // tile[0]) * cols + x // tile[1])
            room = mask.shape[0] * rows * cols
            made.append((listed(ids, room), np.int32(len(ids)), np.bool_(False), mask))
        return made

    def data(rng: np.random.Generator) -> Arrays:
        return {"mask": bits(rng, shape) & (rng.random(shape) < 0.3)}

    return Problem(
        f"{shape} by {tile}, {stages}", call, meaning, {}, 1, data, split={"mask": 0}, seen=seen
    )


OPS = {
    "affected_index": affected_index,
    "component_index": component_index,
    "tile_index": tile_index,
}
