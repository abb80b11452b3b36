"""Packing for the runs executor on CUDA: runs of 16 kept weights of an output, a run a lane.

A block serves some outputs and one of `parts` ranges of the inputs. What an output keeps in a part
is cut into runs of up to 16 neighbours whose inputs lie less than 256 apart. The block's threads
are dealt to its outputs, each up to `chunks` runs of one output; all blocks have the same number of
threads and chunks, so that a piece lies where block, chunk and thread say. With 8 bits a place
counts from the run's base, and the entries of a run come in the order that spares banks; with 4
bits it counts from the place before, and zeros fill gaps of more than 15. The C++ of
cpu/kernels/pruned_matmul/runs_pack.cc cuts and places the runs.
"""

from dataclasses import dataclass

import numpy as np

from jaxsparse.core.device import MOST_SHARED_BYTES, MULTIPROCESSORS
from jaxsparse.ffi.register import native

ENTRIES = 16  # of a run
SPAN = 256  # inputs that a run reaches
BITS = (4, 8)  # of a place
PARTS = (1, 2, 4, 8)
MOST_INPUTS = 65536  # of a part: 16 bits name a base
BLOCKS = (MULTIPROCESSORS, 2 * MULTIPROCESSORS)  # wanted: one or two a multiprocessor


@dataclass(frozen=True)
class RunsPack:
    """Entries of a weight matrix, thread by thread.

    Attributes:
        starts: int32[blocks * (outputs + 1)]: the first thread of each output of a block.
        bases: uint16[blocks, chunks, threads]: the base of each run.
        places: uint8[blocks, chunks, threads, 2 * bits]: from the base, or from the place before.
        rows: int32[groups * outputs]: the outputs of each group of blocks, -1 for none.
        order: int32[blocks, chunks, 2, threads, 8]: position of each entry among the kept weights,
            -1 for padding.
        warps: of a block.
        chunks: runs of a thread.
    """

    starts: np.ndarray
    bases: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    order: np.ndarray
    warps: int
    chunks: int


def most_warps(rows: int) -> int:
    """Of a block: many rows need many registers."""
    return 16 if rows > 4 else 32


def input_bytes(rows: int) -> int:
    """Shared memory of an input: 1 row as a float, others as 16 bits."""
    return 4 if rows <= 2 else 8 if rows <= 4 else 16 if rows <= 8 else 32


def part_inputs(n_in: int, parts: int) -> int:
    """Inputs of a part: a multiple of 8."""
    return -(-n_in // (8 * parts)) * 8


def fits(n_in: int, n_out: int, parts: int, rows: int, blocks: int = BLOCKS[0]) -> bool:
    """Whether a block can hold its part of the inputs, its sums, and a thread for each output."""
    return (
        part_inputs(n_in, parts) <= MOST_INPUTS
        and shared_bytes(n_in, n_out, parts, rows, blocks) <= MOST_SHARED_BYTES
        and -(-n_out // _groups(n_out, parts, blocks)) <= 32 * most_warps(rows)
    )


def shared_bytes(n_in: int, n_out: int, parts: int, rows: int, blocks: int = BLOCKS[0]) -> int:
    """Shared memory of a block."""
    outputs = -(-n_out // _groups(n_out, parts, blocks))
    padded = 1 << max(0, rows - 1).bit_length()
    sums = padded * (32 * most_warps(rows) + 1 + outputs)
    return (part_inputs(n_in, parts) + SPAN) * input_bytes(rows) + 4 * sums


def place_of(inputs: np.ndarray, rows: int) -> np.ndarray:
    """Where inputs of a part lie: the 16-byte units of 8 neighbours change places with them."""
    units = _units(rows)
    turn = inputs // 8 // (8 // units) % units
    return inputs ^ turn * (8 // units)


def _units(rows: int) -> int:
    """Of 16 bytes, that 8 inputs take."""
    return min(8, max(2, input_bytes(rows) // 2))


def _groups(n_out: int, parts: int, blocks: int) -> int:
    outputs = -(-n_out // max(1, blocks // parts))
    return max(1, -(-n_out // max(1, outputs)))


def pack_runs(
    indptr: np.ndarray,
    indices: np.ndarray,
    n_in: int,
    *,
    bits: int,
    parts: int,
    rows: int,
    blocks: int = BLOCKS[0],
) -> RunsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs, a multiple of 8.
        bits: of a place, 4 or 8.
        parts: ranges of the inputs.
        rows: rows of x, 1 to 16.
        blocks: wanted, about.

    Returns:
        The packed arrays.

    Raises:
        ValueError: for a pattern that does not fit (see `fits`).
    """
    if not fits(n_in, len(indptr) - 1, parts, rows, blocks):
        raise ValueError(f"{len(indptr) - 1} outputs of {n_in} inputs do not fit {parts} part(s)")
    n = len(indptr) - 1
    entries = (np.ascontiguousarray(indptr, np.int32), np.ascontiguousarray(indices, np.int32))
    pattern = (*entries, part_inputs(n_in, parts), parts, _units(rows), bits)
    length = np.zeros(n * parts, np.int64)  # runs of each output and part
    native("cpu").runs_count(*pattern, length)
    outputs = _deal(length.reshape(n, parts).sum(1), _groups(n, parts, blocks))
    groups, wide = outputs.shape
    counts = np.zeros((n + 1, parts), np.int64)
    counts[:n] = length.reshape(n, parts)
    by_block = counts[outputs].transpose(0, 2, 1).reshape(groups * parts, wide)
    warps, chunks = _shape(by_block, most_warps(rows))
    used = -(-by_block // chunks)
    starts = np.concatenate([np.zeros((len(used), 1), np.int64), used.cumsum(1)], 1)
    slot_of = np.empty(n + 1, np.int64)
    slot_of[outputs.reshape(-1)] = np.arange(groups * wide)
    slot, part = np.repeat(slot_of[:n], parts), np.tile(np.arange(parts), n)
    block = slot // wide * parts + part
    size = groups * parts * chunks * 32 * warps
    bases, places = np.zeros(size, np.uint16), np.zeros(size * 2 * bits, np.uint8)
    order = np.full(size * ENTRIES, -1, np.int32)
    lanes = 32 if rows <= 2 else 16 if rows <= 4 else 8  # that load together
    native("cpu").runs_place(
        *pattern, block, starts[block, slot % wide], chunks, 32 * warps, lanes, bases, places, order
    )
    return RunsPack(
        starts.astype(np.int32).reshape(-1),
        bases,
        places,
        np.where(outputs == n, -1, outputs).astype(np.int32).reshape(-1),
        order,
        warps,
        chunks,
    )


def _deal(work: np.ndarray, groups: int) -> np.ndarray:
    """int[groups, outputs of a group]: by their work, back and forth; len(work) for none."""
    n = len(work)
    wide = max(1, -(-n // groups))
    dealt = np.full(groups * wide, n, np.int64)
    dealt[:n] = np.argsort(-work, kind="stable")
    dealt = dealt.reshape(wide, groups)
    dealt[1::2] = dealt[1::2, ::-1]
    return np.ascontiguousarray(dealt.T)


def _shape(counts: np.ndarray, most: int) -> tuple[int, int]:
    """Warps of a block and runs of a thread: the least that is read."""

    def warps_of(chunks: int) -> int:
        return max(1, -(-int((-(-counts // chunks)).sum(1).max(initial=0)) // 32))

    chunks = max(1, -(-int(counts.sum(1).max(initial=0)) // (32 * most)))
    while warps_of(chunks) > most:
        chunks += 1
    tried = [(warps_of(c) * c, c) for c in range(chunks, 2 * chunks + 1)]
    chunks = min(tried)[1]
    return warps_of(chunks), chunks
