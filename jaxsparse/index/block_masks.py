"""Masks of attention that many models use, as `BlockMask`. Lengths, documents, positions and scores
are data: one compilation serves them all. No maker holds the dense mask, and inside jit each knows
how many partial blocks there can be, so that their bits take little room. Join them with `&`, `|`.
"""

from jaxsparse.index.blocks.makers import causal as causal
from jaxsparse.index.blocks.makers import document as document
from jaxsparse.index.blocks.makers import lengths as lengths
from jaxsparse.index.blocks.makers import prefix as prefix
from jaxsparse.index.blocks.makers import sliding_window as sliding_window
from jaxsparse.index.blocks.structured import bars as bars
from jaxsparse.index.blocks.structured import global_tokens as global_tokens
from jaxsparse.index.blocks.structured import top_k_blocks as top_k_blocks

__all__ = [
    "bars",
    "causal",
    "document",
    "global_tokens",
    "lengths",
    "prefix",
    "sliding_window",
    "top_k_blocks",
]
