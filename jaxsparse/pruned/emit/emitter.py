"""Code for one frozen weight pattern: a dense tiling whose zero products were left out.

The inspector-executor of generated code: start from a dense matrix product, tile it, and remove the
work on zeros; what is left is straight-line code in which every kept weight is an immediate and
every accumulator a register (SparseRT, PACT 2020, sections 3.3 to 3.5).

A warp owns a tile of 32 rows of x, one a lane, and a slice of up to `slice_width` outputs, all of
them accumulators. `mates` warps share a tile, each with its own slice: warps of one scheduler run
the same code, and x is read once for all of them. Rows stream through `STAGES` shared-memory stages
of 128 bytes a row (`cp.async`, 16-byte pieces swizzled by the row, so that a lane reads its own row
without bank conflicts). Slices are runs of outputs of nearly equal work. Blocks walk row tiles
first, so that the code of few slices stays in the instruction cache while the tiles last. Longer
code is fetched from the second-level cache, a few cycles an instruction and scheduler: with few
rows of x a cluster of `parts` blocks splits the inputs, so that each fetches less, and adds up its
sums in distributed shared memory.
"""

import hashlib
import itertools
from dataclasses import dataclass

import numpy as np

from jaxsparse.core.dtypes import BYTES
from jaxsparse.pruned.emit.kernel import kernel_head, kernel_tail, meet
from jaxsparse.pruned.emit.shape import STAGE_BYTES, STAGES, CodeShape, hex_float


@dataclass(frozen=True)
class Code:
    """Generated code, and how it is launched.

    Attributes:
        ptx: the module's text.
        digest: 63 bits of a SHA-256 of the text: its name in the process's table of code.
        slices: runs of outputs, a multiple of the mates.
        shape: its tunables.
        fused: products in the code; 16 bytes of machine code each.
        largest: products of the largest slice, or of its largest part.
        hopper: whether it is for compute capability 9.0 and up.
    """

    ptx: bytes
    digest: int
    slices: int
    shape: CodeShape
    fused: int
    largest: int
    hopper: bool


def split_evenly(work: np.ndarray, parts: int, most: int, align: int = 1) -> list[int]:
    """Cut a line of items into runs of nearly equal work.

    Args:
        work: int[n], work of each item.
        parts: runs wanted; more come out where `most` demands it, fewer where there are fewer
            aligned places to cut.
        most: the most items of a run; a multiple of `align`.
        align: runs begin at multiples of this.

    Returns:
        The first item of each run, then n.
    """
    n = len(work)
    parts = max(1, min(parts, -(-n // align)), -(-n // most))
    total = np.concatenate([[0], np.cumsum(work + work.sum() / max(n, 1) * 1e-3)])
    cuts = [0]
    for part in range(1, parts):
        left = parts - part
        want = cuts[-1] + 0.5
        goal = total[cuts[-1]] + (total[n] - total[cuts[-1]]) / (left + 1)
        want = int(np.searchsorted(total, goal))
        low = max(cuts[-1] + align, n - left * most)
        high = min(cuts[-1] + most, n - align * left)
        cut = min(max(-(-want // align) * align, -(-low // align) * align), high // align * align)
        if cut <= cuts[-1]:
            break
        cuts.append(cut)
    return [*cuts, n]


def digest_of(*texts: bytes) -> int:
    """63 bits of a SHA-256 of the texts."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(hashlib.sha256(text).digest() if len(texts) > 1 else text)
    return int.from_bytes(whole.digest()[:8], "little") >> 1


class Emitter:
    """Writes the module of one weight matrix.

    Args:
        indptr: int[n+1], CSR rows of w.T: a row an output.
        indices: int[e], inputs, ascending within a row.
        values: float32[e].
        n_in: inputs k; rows of x are `n_in` elements, a multiple of 16 bytes.
        dtype: of x ("float32", "bfloat16", "float16").
        out_dtype: of the result.
        shape: the tunables.
        hopper: for compute capability 9.0 and up: the modules of a product may overlap, and the
            inputs may be split.

    Raises:
        ValueError: rows of x are not a multiple of 16 bytes, or parts without clusters.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        n_in: int,
        *,
        dtype: str = "float32",
        out_dtype: str = "float32",
        shape: CodeShape | None = None,
        hopper: bool = False,
    ) -> None:
        self.n_out, self.n_in = len(indptr) - 1, n_in
        self.dtype, self.out_dtype = dtype, out_dtype
        self.shape, self.hopper = shape or CodeShape(), hopper
        if self.shape.parts > 1 and not hopper:
            raise ValueError(f"parts={self.shape.parts}: only Hopper has clusters of blocks")
        self.element = BYTES[dtype]
        self.piece = 16 // self.element  # inputs of a 16-byte piece
        self.chunk = 8 * self.piece  # inputs of a stage
        if n_in % self.piece:
            raise ValueError(f"n_in={n_in}: generated code needs a multiple of {self.piece}")
        self.vector = 4 if self.n_out % 4 == 0 else 1
        outputs = np.repeat(np.arange(self.n_out), np.diff(indptr))
        by_input = np.lexsort((outputs, indices))
        self.k, self.j, self.v = indices[by_input], outputs[by_input], values[by_input]
        # As many slices as whole blocks of mates take; the last ones may be empty.
        slices = -(-self.n_out // self.shape.slice_width)
        slices += -slices % self.shape.mates
        self.cuts = split_evenly(np.diff(indptr), slices, self.shape.slice_width, self.vector)
        self.cuts += [self.n_out] * (slices + 1 - len(self.cuts))
        self.chunks, work = np.unique(self.k // self.chunk, return_counts=True)
        ends = split_evenly(work, self.shape.parts, max(1, len(work)))
        ends += [len(work)] * (self.shape.parts + 1 - len(ends))
        self.part_chunks = [self.chunks[a:b] for a, b in itertools.pairwise(ends)]
        self.lines: list[str] = []
        self.largest = 0

    def put(self, *lines: str) -> None:
        """Append lines."""
        self.lines.extend(lines)

    def module(self, first: int = 0, last: int | None = None) -> Code:
        """A module of slices `first` to `last` (all): one kernel that branches to its slice."""
        cuts = self.cuts[first : len(self.cuts) if last is None else last + 1]
        self.lines, self.largest, fused = [], 0, 0
        newer = (".version 8.0", ".target sm_90")
        versions = newer if self.hopper else (".version 7.4", ".target sm_80")
        self.put(*versions, ".address_size 64")
        self.put(".extern .shared .align 128 .b8 memory[];")
        bounds = ", ".join(map(str, cuts))
        self.put(f".const .align 4 .u32 bounds[{len(cuts)}] = {{{bounds}}};")
        self.put(*kernel_head(self, len(cuts) - 1))
        for i, (begin, end) in enumerate(itertools.pairwise(cuts)):
            inside = np.flatnonzero((self.j >= begin) & (self.j < end))
            fused += len(inside)
            for part, chunks in enumerate(self.part_chunks):
                name = f"slice{i}" if self.shape.parts == 1 else f"slice{i}part{part}"
                mine = inside[np.isin(self.k[inside] // self.chunk, chunks)]
                self.largest = max(self.largest, len(mine))
                self._slice(name, begin, end, mine, [int(c) for c in chunks])
        self.put(*kernel_tail(self))
        ptx = "\n".join(self.lines).encode() + b"\n"
        return Code(
            ptx, digest_of(ptx), len(cuts) - 1, self.shape, fused, self.largest, self.hopper
        )

    def modules(self, most: int) -> tuple[Code, ...]:
        """Modules of some slices each, of about `most` products: they assemble side by side."""
        mates, slices = self.shape.mates, len(self.cuts) - 1
        blocks = slices // mates
        count = max(1, min(blocks, -(-len(self.v) // max(1, most))))
        ends = [blocks * (i + 1) // count * mates for i in range(count)]
        return tuple(self.module(a, b) for a, b in itertools.pairwise([0, *ends]))

    def _slice(
        self, name: str, first: int, last: int, entries: np.ndarray, chunks: list[int]
    ) -> None:
        # Registers: source, the lane's piece of its first row; low and high, where the pieces of
        # its even and odd rows go; from0..7, the eight pieces of the lane's own row.
        width = last - first
        self.put(f"{name}:")
        self.put(*(f"mov.f32 a{i}, 0f00000000;" for i in range(width)))
        of_chunk = self.k[entries] // self.chunk
        for i in range(STAGES - 1):
            self._load(chunks[i] if i < len(chunks) else -1, i)
        for i, chunk in enumerate(chunks):
            self.put(f"cp.async.wait_group {STAGES - 2};", *meet(self))
            ahead = i + STAGES - 1
            self._load(chunks[ahead] if ahead < len(chunks) else -1, ahead % STAGES)
            self._multiply(entries[of_chunk == chunk], chunk, i % STAGES, first)
        self.put("cp.async.wait_all;", *meet(self))
        self._park(width)
        self.put("bra.uni summed;")

    def _load(self, chunk: int, stage: int) -> None:
        # 32 rows of a chunk in eight steps of four rows, dealt to the mates; pieces past the row's
        # end are not read.
        if chunk >= 0:
            pieces = min(8, (self.n_in - chunk * self.chunk) // self.piece)
            guard = ""
            if pieces < 8:
                self.put(f"setp.lt.u32 valid, piece, {pieces};")
                guard = "@valid "
            steps = 8 // self.shape.mates
            for i in range(steps):
                # A mate's steps follow each other; the swizzle changes with every step.
                to = ("low", "high")[i % 2] if steps > 1 else "low"
                offset = stage * STAGE_BYTES + i * 512
                source = chunk * 128 + i * 4 * self.n_in * self.element
                self.put(
                    f"{guard}cp.async.cg.shared.global [{to}+{offset}], [source+{source}], 16;"
                )
        self.put("cp.async.commit_group;")

    def _multiply(self, entries: np.ndarray, chunk: int, stage: int, first: int) -> None:
        of_piece = self.k[entries] // self.piece - chunk * 8
        for q in np.unique(of_piece):
            at = f"[from{q}+{stage * STAGE_BYTES}]"
            self.put(f"ld.shared.v4.b32 {{x0, x1, x2, x3}}, {at};")
            inside = entries[of_piece == q]
            slots = self.k[inside] % self.piece
            self.put(*(self._widen(slot) for slot in np.unique(slots)))
            for slot, j, v in zip(slots, self.j[inside] - first, self.v[inside], strict=True):
                self.put(f"fma.rn.f32 a{j}, f{slot}, {hex_float(v)}, a{j};")

    def _widen(self, slot: int) -> str:
        if self.dtype == "float32":
            return f"mov.b32 f{slot}, x{slot};"
        word, upper = divmod(int(slot), 2)
        if self.dtype == "bfloat16":
            move = (
                f"and.b32 x{4 + word}, x{word}, 0xffff0000;"
                if upper
                else (f"shl.b32 x{4 + word}, x{word}, 16;")
            )
            return f"{move} mov.b32 f{slot}, x{4 + word};"
        return f"mov.b32 {{h{2 * word}, h{2 * word + 1}}}, x{word}; cvt.f32.f16 f{slot}, h{slot};"

    def _park(self, width: int) -> None:
        # The sums, a row a lane, where the tile's stages were.
        for i in range(0, width - width % 4, 4):
            values = ", ".join(f"a{i + c}" for c in range(4))
            self.put(f"st.shared.v4.f32 [park+{i * 4}], {{{values}}};")
        for i in range(width - width % 4, width):
            self.put(f"st.shared.f32 [park+{i * 4}], a{i};")
