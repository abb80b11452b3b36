"""Packing for the windows executor: outputs dealt to warps by size, entries as streams of quads,
each a number and where its window begins.
"""

from dataclasses import dataclass

import numpy as np

from jaxsparse.pruned.layouts.conv import Layout
from jaxsparse.pruned.layouts.quads import place_in_quads


@dataclass(frozen=True)
class WindowsPack:
    """Entries of a kernel in the order in which warps read them.

    Attributes:
        starts: int32[slabs * output_warps]: the quad at which each warp's stream begins.
        indices: uint16[e]: floats into the buffer; padding points at the window of zeros.
        rows: int32[slabs, output_warps, rounds, outputs]: the output of each slot, -1 for none.
        extra: uint16[slabs, output_warps, rounds, chunks, outputs] as bytes: quads of each run.
        order: int32[e]: position of each entry among the kept weights, -1 for padding.
    """

    starts: np.ndarray
    indices: np.ndarray
    rows: np.ndarray
    extra: np.ndarray
    order: np.ndarray


def deal_groups(sizes: np.ndarray, layout: Layout, neighbours: bool) -> np.ndarray:
    """Deal outputs to warps, by size, back and forth.

    Args:
        sizes: int[n], kept weights of each output.
        layout: of the call.
        neighbours: whether the outputs of a warp are neighbours, which are stored together.

    Returns:
        int32[slabs, output_warps, rounds, outputs], the output of each slot, -1 for none.
    """
    tile, n = layout.tile, len(sizes)
    slabs = -(-n // tile.slab)
    width = tile.outputs if neighbours else 1
    units = -(-n // width)
    total = np.zeros(units * width, np.int64)
    total[:n] = sizes
    by_size = np.argsort(-total.reshape(units, width).sum(1), kind="stable")
    places = slabs * tile.slab // width
    slots = np.full(places, -1, np.int64)
    slots[:units] = by_size
    warps = slabs * tile.output_warps  # neighbouring places in turn go to different blocks
    turns = slots.reshape(-1, warps)
    turns[1::2] = turns[1::2, ::-1]
    dealt = turns.reshape(-1, tile.output_warps, slabs).transpose(2, 1, 0)
    outputs = dealt.reshape(slabs, tile.output_warps, -1, 1) * width + np.arange(width)
    outputs = np.where((dealt.reshape(*outputs.shape[:3], 1) < 0) | (outputs >= n), -1, outputs)
    shape = (slabs, tile.output_warps, tile.rounds, tile.outputs)
    return outputs.reshape(shape).astype(np.int32)


def pack_windows(
    indptr: np.ndarray,
    taps: tuple[np.ndarray, np.ndarray, np.ndarray],
    layout: Layout,
    neighbours: bool,
) -> WindowsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows: a row an output.
        taps: (channel, ky, kx) of each entry, rows one after the other, ascending in each.
        layout: of the call.
        neighbours: as in `deal_groups`.

    Returns:
        The packed arrays.
    """
    tile, sizes = layout.tile, np.diff(indptr)
    channel, ky, kx = taps
    rows = deal_groups(sizes, layout, neighbours)
    flat = rows.reshape(-1)
    slot_of = np.zeros(len(sizes), np.int64)
    slot_of[flat[flat >= 0]] = np.flatnonzero(flat >= 0)
    group, place = np.divmod(np.repeat(slot_of, sizes), tile.outputs)
    run = (group * layout.chunks + channel // tile.chunk) * tile.outputs + place
    runs = len(flat) * layout.chunks
    quads, first, in_order, at, order = place_in_quads(run, runs)
    offsets = np.zeros(len(order), np.uint16)
    window = tile.places + channel % tile.chunk * layout.stride + layout.offsets[ky, kx]
    offsets[at] = window[in_order]
    per_stream = tile.rounds * layout.chunks * tile.outputs
    return WindowsPack(
        first[:runs:per_stream].astype(np.int32),
        offsets,
        flat,
        quads.astype("<u2").view(np.uint8),
        order,
    )
