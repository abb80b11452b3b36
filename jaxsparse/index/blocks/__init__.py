"""Masks of attention in blocks: lists of the blocks that count, with bits where one counts in
part.
"""

from jaxsparse.index.blocks.create import create_block_mask as create_block_mask
from jaxsparse.index.blocks.types import BlockMask as BlockMask

__all__ = ["BlockMask", "create_block_mask"]
