"""Tunables of generated code, and what its two halves share."""

import struct
from dataclasses import dataclass

STAGES = 3
STAGE_BYTES = 4096  # 32 rows of 128 bytes
LANES = 32
# More cost more to fetch and to compile than they save.
MOST_PRODUCTS = 110_000
# Of a module, about: the modules of a product are assembled side by side.
MODULE_PRODUCTS = 28_000


@dataclass(frozen=True)
class CodeShape:
    """Tunables of the generated code.

    Attributes:
        slice_width: the most outputs of a slice: accumulators of a lane.
        mates: warps that share a row tile, each with its own slice.
        row_tiles: row tiles of a block, at most 15.
        parts: blocks of a cluster that split the inputs: 1, 2, 4 or 8.
    """

    slice_width: int = 64
    mates: int = 4
    row_tiles: int = 4
    parts: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return LANES * self.mates * self.row_tiles

    @property
    def park_bytes(self) -> int:
        """Shared memory of a warp's sums: rows padded so that 8 lanes have no bank conflict."""
        return LANES * (self.slice_width + 4) * 4

    @property
    def tile_bytes(self) -> int:
        """Shared memory of a row tile: its stages, later its sums."""
        return max(STAGES * STAGE_BYTES, self.mates * self.park_bytes)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.tile_bytes * self.row_tiles


def hex_float(value: float) -> str:
    """A float32 as PTX writes it, exactly."""
    return "0f" + struct.pack(">f", float(value)).hex().upper()
