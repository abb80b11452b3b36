"""From packed masks to device-resident lists of active tiles."""

from jaxsparse.index.affected_index import affected_index as affected_index
from jaxsparse.index.blocks import BlockMask as BlockMask
from jaxsparse.index.blocks import create_block_mask as create_block_mask
from jaxsparse.index.kept_blocks import KeptBlocks as KeptBlocks
from jaxsparse.index.kept_blocks import kept_blocks as kept_blocks
from jaxsparse.index.packing import TokenPacking as TokenPacking
from jaxsparse.index.portfolio import Portfolio as Portfolio
from jaxsparse.index.portfolio import portfolio_index as portfolio_index
from jaxsparse.index.tile_index import tile_index as tile_index
from jaxsparse.index.types import TileIndex as TileIndex

__all__ = [
    "BlockMask",
    "KeptBlocks",
    "Portfolio",
    "TileIndex",
    "TokenPacking",
    "affected_index",
    "create_block_mask",
    "kept_blocks",
    "portfolio_index",
    "tile_index",
]
