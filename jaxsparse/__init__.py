"""jaxsparse: the sparse backend for JAX. Operations that skip the work that their data does not
need.

`import jaxsparse as js`. The path of the data: mask -> bits -> index -> select -> kernel.
"""

from jaxsparse import bounded as bounded
from jaxsparse import export as _export  # noqa: F401  (registers the pytrees)
from jaxsparse import mask as mask
from jaxsparse import nn as nn
from jaxsparse import pruned as pruned
from jaxsparse import recorder as recorder
from jaxsparse.bits import pack_mask as pack_mask
from jaxsparse.bits import unpack_mask as unpack_mask
from jaxsparse.ffi import DISABLE_JAX_EXPORT_CHECKS as DISABLE_JAX_EXPORT_CHECKS
from jaxsparse.index import BlockMask as BlockMask
from jaxsparse.index import TileIndex as TileIndex
from jaxsparse.index import TokenPacking as TokenPacking
from jaxsparse.index import affected_index as affected_index
from jaxsparse.index import block_masks as block_masks
from jaxsparse.index import create_block_mask as create_block_mask
from jaxsparse.index import tile_index as tile_index
from jaxsparse.mask import lengths_mask as lengths_mask
from jaxsparse.mask import plot as plot
from jaxsparse.mask import show as show
from jaxsparse.ops import Routing as Routing
from jaxsparse.ops import bounded_matmul as bounded_matmul
from jaxsparse.ops import grouped_matmul as grouped_matmul
from jaxsparse.ops import masked_conv as masked_conv
from jaxsparse.ops import masked_conv_stack as masked_conv_stack
from jaxsparse.ops import masked_dense as masked_dense
from jaxsparse.ops import masked_matmul as masked_matmul
from jaxsparse.ops import masked_norm as masked_norm
from jaxsparse.ops import masked_pool as masked_pool
from jaxsparse.ops import pack_tokens as pack_tokens
from jaxsparse.ops import pruned_conv as pruned_conv
from jaxsparse.ops import pruned_matmul as pruned_matmul
from jaxsparse.ops import route as route
from jaxsparse.ops import sparse_attention as sparse_attention
from jaxsparse.ops import token_index as token_index
from jaxsparse.ops import unpack_tokens as unpack_tokens
from jaxsparse.pruned import PrunedWeight as PrunedWeight
from jaxsparse.pruned import prune as prune
from jaxsparse.pruned import prune_model as prune_model
from jaxsparse.select import TuningTable as TuningTable
from jaxsparse.select import checked as checked
from jaxsparse.select import config as config
from jaxsparse.select import explain as explain
from jaxsparse.select import variants as variants
from jaxsparse.tune import tune as tune
from jaxsparse.version import __version__ as __version__

__all__ = [
    "BlockMask",
    "DISABLE_JAX_EXPORT_CHECKS",
    "PrunedWeight",
    "Routing",
    "TileIndex",
    "TokenPacking",
    "TuningTable",
    "__version__",
    "affected_index",
    "block_masks",
    "bounded",
    "bounded_matmul",
    "checked",
    "config",
    "create_block_mask",
    "explain",
    "grouped_matmul",
    "lengths_mask",
    "mask",
    "masked_conv",
    "masked_conv_stack",
    "masked_dense",
    "masked_matmul",
    "masked_norm",
    "masked_pool",
    "nn",
    "pack_mask",
    "pack_tokens",
    "plot",
    "prune",
    "prune_model",
    "pruned",
    "pruned_conv",
    "pruned_matmul",
    "recorder",
    "route",
    "show",
    "sparse_attention",
    "tile_index",
    "token_index",
    "tune",
    "unpack_mask",
    "unpack_tokens",
    "variants",
]


def __dir__() -> list[str]:
    """The API, without what the package is made of."""
    return sorted(__all__)
