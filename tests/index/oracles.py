"""Tiles of masks by numpy and scipy: shares no code with the package."""

import numpy as np
from scipy import ndimage


def tiles_of(mask, tile):
    """The ids of the active tiles, ascending."""
    rows, cols = (-(-n // t) for n, t in zip(mask.shape[1:], tile, strict=True))
    b, y, x = np.nonzero(mask)
    return np.unique((b * rows + y // tile[0]) * cols + x // tile[1])


def component_tiles_of(mask, tile):
    """(b, y0, x0) in the raster order of each tile's first pixel of its component."""
    th, tw = tile
    found = []
    for b, image in enumerate(mask if mask.size else ()):
        labels, _ = ndimage.label(image, np.ones((3, 3)))
        boxes = ndimage.find_objects(labels)
        seen = set()
        for y, x in np.argwhere(image):
            box = boxes[labels[y, x] - 1]
            top, left = box[0].start, box[1].start
            y0, x0 = top + (y - top) // th * th, left + (x - left) // tw * tw
            if (labels[y, x], y0, x0) not in seen:
                seen.add((labels[y, x], y0, x0))
                found.append((b, y0, x0))
    return np.asarray(found, np.int32).reshape(-1, 3)


def spread(mask, window, stride):
    """bool[B, Ho, Wo]: the outputs of a convolution padded "SAME" that read a set pixel."""
    out_hw = [-(-n // s) for n, s in zip(mask.shape[1:], stride, strict=True)]
    pads = [
        max((o - 1) * s + k - n, 0) // 2
        for n, o, s, k in zip(mask.shape[1:], out_hw, stride, window, strict=True)
    ]
    out = np.zeros((mask.shape[0], *out_hw), bool)
    for b, y, x in np.ndindex(*out.shape):
        rows, columns = (
            slice(max(at * s - p, 0), max(at * s - p + k, 0))
            for at, s, p, k in zip((y, x), stride, pads, window, strict=True)
        )
        out[b, y, x] = mask[b, rows, columns].any()
    return out


def words_of(mask):
    """The bits of the last axis in uint32 words, the lowest first."""
    n = mask.shape[-1]
    padded = np.zeros((*mask.shape[:-1], -(-n // 32) * 32), bool)
    padded[..., :n] = mask
    return np.packbits(padded, axis=-1, bitorder="little").view("<u4").astype(np.uint32)


def listed(ids, capacity):
    """`ids` in a list of this room, -1 after the last."""
    out = np.full((capacity, *ids.shape[1:]), -1, np.int32)
    out[: min(len(ids), capacity)] = ids[:capacity]
    return out
