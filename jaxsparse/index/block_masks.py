"""Ready-made attention masks (`BlockMask`). Lengths, documents, positions and scores are data: one
compilation serves them all. The dense mask is never stored. All but `bars` know how many partial
blocks there can be, so inside jit their bits take little memory. Combine masks with `&` and `|`.
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
