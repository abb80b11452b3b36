"""Packing for the runs executor on CUDA: runs of 16 kept weights of an output, a run a lane.

A block serves some outputs and one of `parts` ranges of the inputs. What an output keeps in a part
is cut into runs of up to 16 neighbours whose inputs lie less than 256 apart. The block's threads
are dealt to its outputs, each up to `chunks` runs of one output; all blocks have the same number of
threads and chunks, so that a piece lies where block, chunk and thread say. With 8 bits a place
counts from the run's base, and the entries of a run come in the order that spares banks; with 4
bits it counts from the place before, and zeros fill gaps of more than 15.
"""

from dataclasses import dataclass

import numpy as np

ENTRIES = 16  # of a run
SPAN = 256  # inputs that a run reaches
BITS = (4, 8)  # of a place
PARTS = (1, 2, 4, 8)
MOST_INPUTS = 65536  # of a part: 16 bits name a base
SHARED_BYTES = 227 * 1024
_BLOCKS = 132  # wanted: one a multiprocessor
_MOST_GAP = 15  # of 4 bits


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


def fits(n_in: int, n_out: int, parts: int, rows: int) -> bool:
    """Whether a block can hold its part of the inputs, its sums, and a thread for each output."""
    return (
        part_inputs(n_in, parts) <= MOST_INPUTS
        and shared_bytes(n_in, n_out, parts, rows) <= SHARED_BYTES
        and -(-n_out // _groups(n_out, parts)) <= 32 * most_warps(rows)
    )


def shared_bytes(n_in: int, n_out: int, parts: int, rows: int) -> int:
    """Shared memory of a block."""
    outputs = -(-n_out // _groups(n_out, parts))
    padded = 1 << max(0, rows - 1).bit_length()
    sums = padded * (32 * most_warps(rows) + 1 + outputs) + 2 * outputs + 1
    return (part_inputs(n_in, parts) + SPAN) * input_bytes(rows) + 4 * sums


def place_of(inputs: np.ndarray, rows: int) -> np.ndarray:
    """Where inputs of a part lie: the 16-byte units of 8 neighbours change places with them."""
    units = min(8, max(2, input_bytes(rows) // 2))
    turn = inputs // 8 // (8 // units) % units
    return inputs ^ turn * (8 // units)


def _groups(n_out: int, parts: int) -> int:
    outputs = -(-n_out // max(1, _BLOCKS // parts))
    return max(1, -(-n_out // max(1, outputs)))


def pack_runs(
    indptr: np.ndarray, indices: np.ndarray, n_in: int, *, bits: int, parts: int, rows: int
) -> RunsPack:
    """Pack a pattern.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        n_in: inputs, a multiple of 8.
        bits: of a place, 4 or 8.
        parts: ranges of the inputs.
        rows: rows of x, 1 to 16.

    Returns:
        The packed arrays.

    Raises:
        ValueError: for a pattern that does not fit (see `fits`).
    """
    if not fits(n_in, len(indptr) - 1, parts, rows):
        raise ValueError(f"{len(indptr) - 1} outputs of {n_in} inputs do not fit {parts} part(s)")
    n, width = len(indptr) - 1, part_inputs(n_in, parts)
    part, local = np.divmod(indices.astype(np.int64), max(width, 1))
    stream = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr)) * parts + part
    key = stream * MOST_INPUTS + place_of(local, rows)
    entry = np.argsort(key, kind="stable")
    key = key[entry]
    if bits == 4:
        key, entry = _fill_gaps(key, entry)
    first, run = _cut(key, bits)
    length = np.bincount(key[first] // MOST_INPUTS, minlength=n * parts)  # runs of each stream
    outputs = _deal(length.reshape(n, parts).sum(1), _groups(n, parts))
    groups, wide = outputs.shape
    counts = np.zeros((n + 1, parts), np.int64)
    counts[:n] = length.reshape(n, parts)
    by_block = counts[outputs].transpose(0, 2, 1).reshape(groups * parts, wide)
    warps, chunks = _shape(by_block, most_warps(rows))
    threads = -(-by_block // chunks)
    starts = np.concatenate([np.zeros((len(threads), 1), np.int64), threads.cumsum(1)], 1)
    # Where each run lies: its block, thread and chunk.
    slot_of = np.empty(n + 1, np.int64)
    slot_of[outputs.reshape(-1)] = np.arange(groups * wide)
    of_run = key[first] // MOST_INPUTS
    slot, part = slot_of[of_run // parts], of_run % parts
    nth = np.arange(len(first)) - np.concatenate([[0], length.cumsum()])[of_run]
    block = slot // wide * parts + part
    thread = starts[block, slot % wide] + nth // chunks
    where = (block * chunks + nth % chunks) * (32 * warps) + thread
    size = groups * parts * chunks * 32 * warps
    place = key % MOST_INPUTS
    rank = np.arange(len(key)) - first[run]
    if bits == 8:
        rank = _spare_banks(place, run, rank, where, rows)
        stored, base = place - place[first][run], place[first]
    else:
        stored = np.where(rank == 0, 0, np.diff(place, prepend=0))
        base = place[first]
    bases = np.zeros(size, np.uint16)
    bases[where] = base
    at = where[run]
    places = np.zeros(size * 2 * bits, np.uint8)
    if bits == 8:
        places[at * ENTRIES + rank] = stored
    else:
        high = rank // 4 % 2
        for half in (0, 1):
            mine = high == half
            spot = at[mine] * 8 + rank[mine] // 8 * 4 + rank[mine] % 4
            places[spot] |= (stored[mine] << 4 * half).astype(np.uint8)
    order = np.full(size * ENTRIES, -1, np.int32)
    chunk, lane = np.divmod(at, 32 * warps)
    order[((chunk * 2 + rank // 8) * 32 * warps + lane) * 8 + rank % 8] = entry
    return RunsPack(
        starts.astype(np.int32).reshape(-1),
        bases,
        places,
        np.where(outputs == n, -1, outputs).astype(np.int32).reshape(-1),
        order,
        warps,
        chunks,
    )


def _fill_gaps(key: np.ndarray, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zeros (entry -1) every 15 places where neighbours of a stream lie farther apart."""
    gap = np.diff(key, append=key[-1:])
    same = np.append(np.diff(key // MOST_INPUTS) == 0, False)
    extra = np.where(same, (gap - 1) // _MOST_GAP, 0)
    keys, entries = np.repeat(key, extra + 1), np.repeat(entry, extra + 1)
    begin = np.cumsum(extra + 1) - (extra + 1)
    step = np.arange(len(keys)) - np.repeat(begin, extra + 1)
    return keys + _MOST_GAP * step, np.where(step == 0, entries, -1)


def _cut(key: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The first entry of each run, and the run of each entry."""
    if not len(key):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins = np.flatnonzero(np.diff(key // MOST_INPUTS, prepend=-1))
    if bits == 4:  # every gap fits: runs are full but for the last of a stream
        since = np.arange(len(key)) - np.repeat(begins, np.diff(np.append(begins, len(key))))
        is_first = since % ENTRIES == 0
    else:
        ends = np.repeat(np.append(begins[1:], len(key)), np.diff(np.append(begins, len(key))))
        far = np.searchsorted(key, key + SPAN)
        following = np.minimum(np.minimum(far, ends), np.arange(len(key)) + ENTRIES)
        is_first, at = np.zeros(len(key) + 1, bool), begins
        ends = np.append(begins[1:], len(key))
        while len(at):
            is_first[at] = True
            at = following[at]
            left = at < ends
            at, ends = at[left], ends[left]
        is_first = is_first[:-1]
    return np.flatnonzero(is_first), np.cumsum(is_first) - 1


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


def _spare_banks(
    place: np.ndarray, run: np.ndarray, rank: np.ndarray, where: np.ndarray, rows: int
) -> np.ndarray:
    """The rank of each entry in its run, so that lanes that load together meet different banks.

    Args:
        place: int[e], of an entry's input.
        run: int[e], the run of each entry.
        rank: int[e], of each entry in its run.
        where: int[runs], the lane that a run is, over all warps and chunks.
        rows: rows of x.

    Returns:
        int[e]. Step by step, lane by lane, the entry of the free bank that most others still want.
    """
    lanes = 32 if rows <= 2 else 16 if rows <= 4 else 8  # of a load's phase, and its banks
    phases, at = np.unique(where // lanes, return_inverse=True)
    kind = np.full((len(phases), lanes, ENTRIES), -1, np.int8)
    kind[at[run], where[run] % lanes, rank] = place % lanes
    wanted = np.zeros((len(phases), lanes + 1), np.int16)  # the last one: of no bank
    for bank in range(lanes):
        wanted[:, bank] = (kind == bank).sum((1, 2))
    turns = np.zeros(kind.shape, np.int8)
    every = np.arange(len(phases))
    for step in range(ENTRIES):
        taken = np.zeros((len(phases), lanes + 1), bool)
        for turn in range(lanes):
            lane = (turn + step) % lanes
            mine = kind[:, lane]
            score = np.take_along_axis(wanted, mine, 1)
            score += np.int16(1024) * ~np.take_along_axis(taken, mine, 1)
            score[mine < 0] = -1
            pick = score.argmax(1)
            able = mine[every, pick] >= 0
            bank = mine[every, pick]
            taken[every[able], bank[able]] = True
            wanted[every[able], bank[able]] -= 1
            turns[every[able], lane, pick[able]] = step
            mine[every[able], pick[able]] = -1
    return turns[at[run], where[run] % lanes, rank].astype(np.int64)
