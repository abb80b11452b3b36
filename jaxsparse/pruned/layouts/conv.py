"""How the windows executor lays an image out in shared memory: planes of floats in which every
tap's window of a tile is one contiguous run.

Along each axis a tap reads output position * stride + tap * dilation, counted from the padding's
first pixel: quotient and remainder by the stride say where in which plane. A plane's rows share
the zeros between them where the padding allows it, and so do small images of one tile.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxsparse.core.device import MOST_SHARED_BYTES
from jaxsparse.core.geometry import Geometry

LANES = 32
MOST_FLOATS = 1 << 16  # of a buffer: offsets are 16 bits
MOST_STRIDE = 31
RING_BYTES = 768  # of a warp's entries


@dataclasses.dataclass(frozen=True)
class Tile:
    """Tunables of the windows executor.

    Attributes:
        outputs: of a warp, at a time.
        positions: of a lane.
        position_warps: warps of a block that share outputs.
        output_warps: warps of a block that share positions.
        rounds: groups of outputs that a warp takes in turn; more than one where one chunk holds
            every channel.
        rows, cols, images: outputs of a tile.
        chunk: channels in shared memory at a time.
    """

    outputs: int
    positions: int
    position_warps: int
    output_warps: int
    rounds: int
    rows: int
    cols: int
    images: int
    chunk: int

    @property
    def key(self) -> tuple[int, ...]:
        """The sizes, in the order of the arguments."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @property
    def places(self) -> int:
        """Positions that a block computes."""
        return LANES * self.positions * self.position_warps

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.position_warps * self.output_warps

    @property
    def slab(self) -> int:
        """Outputs of a block."""
        return self.outputs * self.output_warps * self.rounds


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a window over an image.

    Attributes:
        quotients: int[k], where each tap's window begins in its plane.
        planes: int[k], the plane of each tap.
        phases: remainders modulo the stride, one a plane, as bits.
        span: the largest quotient.
        zeros: positions that are zero at both ends of every plane, where a tile covers the axis.
    """

    quotients: np.ndarray
    planes: np.ndarray
    phases: int
    span: int
    zeros: int

    @staticmethod
    def of(size: int, out: int, kernel: int, geometry: Geometry, axis: int) -> "Axis":
        """The axis (0 down, 1 across) of an image of `size`, `out` results."""
        stride, pad = geometry.strides[axis], geometry.padding[axis][0]
        at = np.arange(kernel) * geometry.dilation[axis]
        quotients, phase = at // stride, at % stride
        used = np.unique(phase)
        span = int(quotients.max(initial=0))
        zeros = span
        for p in used:
            n = np.arange(out + span) * stride + int(p) - pad
            spread = geometry.lhs_dilation[axis]
            real = np.flatnonzero((n >= 0) & (n % spread == 0) & (n // spread < size))
            if len(real):
                zeros = min(zeros, int(real[0]), len(n) - 1 - int(real[-1]))
        phases = sum(1 << int(p) for p in used)
        return Axis(quotients, np.searchsorted(used, phase), phases, span, zeros)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A tile's place in shared memory, for one convolution.

    Attributes:
        tile: the tunables.
        pitch, image_rows, plane: floats of a row, rows of an image, floats of a plane.
        stride: floats of a channel.
        chunks: of channels.
        offsets: int[kh, kw], where each tap's window begins in its channel.
        phases: of both axes, as bits.
    """

    tile: Tile
    pitch: int
    image_rows: int
    plane: int
    planes: int
    chunks: int
    offsets: np.ndarray
    phases: tuple[int, int]

    @staticmethod
    def of(
        tile: Tile,
        channels: int,
        in_hw: Sequence[int],
        out_hw: Sequence[int],
        kernel_hw: Sequence[int],
        geometry: Geometry,
    ) -> "Layout":
        """The layout of a tile; `check` says whether a launch can run it."""
        down, across = (Axis.of(in_hw[i], out_hw[i], kernel_hw[i], geometry, i) for i in range(2))
        shared_rows = down.zeros if tile.rows >= out_hw[0] else 0
        shared_columns = across.zeros if tile.cols >= out_hw[1] else 0
        pitch = tile.cols + across.span - shared_columns
        image_rows = tile.rows + down.span - shared_rows
        plane = tile.images * image_rows * pitch + shared_rows * pitch + shared_columns
        columns = down.planes[:, None] * len(set(across.planes.tolist())) + across.planes
        offsets = columns * plane + down.quotients[:, None] * pitch + across.quotients
        planes = down.phases.bit_count() * across.phases.bit_count()
        chunks = max(1, -(-channels // tile.chunk))
        phases = (down.phases, across.phases)
        return Layout(tile, pitch, image_rows, plane, planes, chunks, offsets, phases)

    def of_tile(self, tile: Tile, channels: int) -> "Layout":
        """The layout of a tile with the same rows, columns and images."""
        return dataclasses.replace(self, tile=tile, chunks=max(1, -(-channels // tile.chunk)))

    @property
    def stride(self) -> int:
        """Floats of a channel: odd, so that neighbouring channels have no bank conflict."""
        return self.planes * self.plane | 1

    @property
    def buffer(self) -> int:
        """Floats of a chunk: a window of zeros, then its channels."""
        return self.tile.places + self.tile.chunk * self.stride

    @property
    def shared_bytes(self) -> int:
        """Of a block: the buffers, room for a window past the last and the table of places; rings
        of entries.
        """
        buffers = 2 if self.chunks > 1 else 1
        floats = buffers * self.buffer + self.tile.places + self.planes * self.plane
        return -(-floats // 4) * 16 + RING_BYTES * self.tile.warps

    @property
    def flat(self) -> int:
        """Places of the tile, those between its rows included."""
        tile = self.tile
        rows = (tile.images - 1) * self.image_rows + tile.rows - 1
        return rows * self.pitch + tile.cols

    def check(self, most_bytes: int = MOST_SHARED_BYTES) -> None:
        """Raises ValueError where a launch would be refused on a device whose blocks may take
        `most_bytes` of shared memory.
        """
        tile = self.tile
        if self.flat > tile.places:
            raise ValueError(f"{self.flat} places for {tile.places} lanes")
        if self.buffer > MOST_FLOATS or self.shared_bytes > most_bytes:
            raise ValueError(f"{self.shared_bytes} bytes of shared memory")
        if tile.warps > (24 if tile.outputs * tile.positions <= 4 else 16):
            raise ValueError(f"{tile.warps} warps")
        if tile.rounds > 1 and self.chunks > 1:
            raise ValueError("rounds need every channel at once")
        if not (tile.rows < 1 << 12 and tile.cols < 1 << 16 and tile.images < 1 << 12):
            raise ValueError("a side of the tile is out of range")

    def attributes(self) -> dict[str, int]:
        """`tile`, `block`, `parts` and `code` of the handler."""
        t = self.tile
        tile = t.rows | t.cols << 12 | t.images << 28
        block = self.pitch | self.image_rows << 17 | self.plane << 33
        parts = t.chunk | t.outputs << 16 | t.positions << 24 | t.position_warps << 32
        parts |= t.output_warps << 40 | t.rounds << 48
        return {
            "tile": tile,
            "block": block,
            "parts": parts,
            "code": self.phases[0] | self.phases[1] << 31,
        }
