"""Bit-packed masks: 32 pixels in a word, little-endian along the last axis."""

from jaxsparse.bits.pack import pack_mask as pack_mask
from jaxsparse.bits.pack import unpack_mask as unpack_mask

__all__ = ["pack_mask", "unpack_mask"]
