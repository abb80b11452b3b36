"""Packing for the data-driven executor on CUDA: outputs dealt to warps by size, entries as streams
of quads.

A block serves a slab of `warps * outputs` outputs; within a slab the outputs, sorted by their kept
weights, are dealt to the warps back and forth, so that every warp has nearly the same work. A warp
reads its entries as one stream: inputs chunk by chunk, within a chunk its outputs one after the
other, each padded to quads whose padding points at the zero column of the tile.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxsparse.pruned.layouts.quads import place_in_quads


@dataclass(frozen=True)
class RowsPack:
    """Entries of a weight matrix in the order in which warps read them.

    Attributes:
        starts: int32[slabs * warps]: the quad at which each warp's stream begins.
        indices: uint16[e]: byte offset of an entry's input in the tile, swizzled.
        rows: int32[slabs * warps * outputs]: the output of each slot, -1 for none.
        extra: uint8[slabs, chunks, warps, outputs]: quads of each run.
        order: int32[e]: position of each entry among the kept weights, -1 for padding.
        slabs: blocks in the direction of the outputs.
        chunks: pieces of the inputs.
    """

    starts: np.ndarray
    indices: np.ndarray
    rows: np.ndarray
    extra: np.ndarray
    order: np.ndarray
    slabs: int
    chunks: int


def deal(sizes: np.ndarray, warps: int, outputs: int) -> np.ndarray:
    """Deal the outputs of each slab to its warps, by size, back and forth.

    Args:
        sizes: int[n], kept weights of each output.
        warps: warps of a block.
        outputs: outputs of a warp.

    Returns:
        int32[slabs, warps, outputs], the output of each slot, -1 where there is none.
    """
    n, width = len(sizes), warps * outputs
    slabs = -(-n // width)
    padded = np.full(slabs * width, -1, np.int64)
    padded[:n] = sizes
    by_size = np.argsort(-padded.reshape(slabs, width), axis=1, kind="stable")
    by_size = by_size.reshape(slabs, outputs, warps)
    by_size[:, 1::2] = by_size[:, 1::2, ::-1]
    slots = by_size.transpose(0, 2, 1) + np.arange(slabs)[:, None, None] * width
    return np.where(slots < n, slots, -1).astype(np.int32)


def tile_offset(inputs: Any, rows: int) -> Any:
    """Where an input of a chunk lies in the tile: 16-byte pieces are swizzled by the input."""
    return inputs * (128 * rows) + inputs // 4 % 8 * 16


def pack_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    n_in: int,
    *,
    rows: int,
    chunk: int,
    warps: int,
    outputs: int,
) -> RowsPack:
    """Pack a pattern for the variant with these sizes.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs.
        rows: rows of x of a lane.
        chunk: inputs of a chunk.
        warps: warps of a block.
        outputs: outputs of a warp.

    Returns:
        The packed arrays.
    """
    sizes = np.diff(indptr)
    slots = deal(sizes, warps, outputs)
    slabs, chunks = len(slots), max(1, -(-n_in // chunk))
    slot_of = np.empty(len(sizes), np.int64)
    filled = slots.reshape(-1) >= 0
    slot_of[slots.reshape(-1)[filled]] = np.flatnonzero(filled)
    warp, place = np.divmod(np.repeat(slot_of, sizes), outputs)
    run = (warp * chunks + indices // chunk) * outputs + place
    runs = slabs * warps * chunks * outputs
    quads, first_quad, in_order, at, order = place_in_quads(run, runs)
    offsets = np.full(len(order), tile_offset(np.int64(chunk), rows), np.uint16)
    offsets[at] = tile_offset(indices[in_order].astype(np.int64) % chunk, rows)
    by_chunk = quads.reshape(slabs, warps, chunks, outputs).transpose(0, 2, 1, 3)
    starts = first_quad[: runs : chunks * outputs].astype(np.int32)
    return RowsPack(
        starts,
        offsets,
        slots.reshape(-1),
        by_chunk.astype(np.uint8).reshape(-1),
        order,
        slabs,
        chunks,
    )
