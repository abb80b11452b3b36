"""jaxsparse: the sparse backend for JAX. Operations that skip the work that their data does not
need.

`import jaxsparse as js`. The path of the data: mask -> bits -> index -> select -> kernel. The
modules of an operation are imported when it is first used.
"""

from typing import TYPE_CHECKING

from jaxsparse import bounded as bounded
from jaxsparse import export as _export  # noqa: F401  (registers the pytrees)
from jaxsparse import mask as mask
from jaxsparse import nn as nn
from jaxsparse import pruned as pruned
from jaxsparse import recorder as recorder
from jaxsparse.bits.api import pack_mask as pack_mask
from jaxsparse.bits.api import unpack_mask as unpack_mask
from jaxsparse.core.lazy import lazy
from jaxsparse.ffi import DISABLE_JAX_EXPORT_CHECKS as DISABLE_JAX_EXPORT_CHECKS
from jaxsparse.index import BlockMask as BlockMask
from jaxsparse.index import KeptBlocks as KeptBlocks
from jaxsparse.index import TileIndex as TileIndex
from jaxsparse.index import TokenPacking as TokenPacking
from jaxsparse.index import affected_index as affected_index
from jaxsparse.index import block_masks as block_masks
from jaxsparse.index import create_block_mask as create_block_mask
from jaxsparse.index import kept_blocks as kept_blocks
from jaxsparse.index import tile_index as tile_index
from jaxsparse.mask import lengths_mask as lengths_mask
from jaxsparse.mask import plot as plot
from jaxsparse.mask import show as show
from jaxsparse.pruned import PrunedWeight as PrunedWeight
from jaxsparse.pruned import prune as prune
from jaxsparse.select import TuningTable as TuningTable
from jaxsparse.select import checked as checked
from jaxsparse.select import config as config
from jaxsparse.select import explain as explain
from jaxsparse.select import variants as variants
from jaxsparse.tune import record_masks as record_masks
from jaxsparse.tune import tune as tune
from jaxsparse.version import __version__ as __version__

if TYPE_CHECKING:
    from jaxsparse.ops.bounded_matmul.api import bounded_matmul as bounded_matmul
    from jaxsparse.ops.dispatch.api import Exchange as Exchange
    from jaxsparse.ops.dispatch.api import combine as combine
    from jaxsparse.ops.dispatch.api import dispatch as dispatch
    from jaxsparse.ops.grouped_matmul.api import grouped_matmul as grouped_matmul
    from jaxsparse.ops.kept_matmul.api import kept_matmul as kept_matmul
    from jaxsparse.ops.masked_conv.api import masked_conv as masked_conv
    from jaxsparse.ops.masked_conv_stack.api import masked_conv_stack as masked_conv_stack
    from jaxsparse.ops.masked_dense.api import masked_dense as masked_dense
    from jaxsparse.ops.masked_dense.api import token_index as token_index
    from jaxsparse.ops.masked_matmul.api import masked_matmul as masked_matmul
    from jaxsparse.ops.masked_norm.api import masked_norm as masked_norm
    from jaxsparse.ops.masked_pool.api import masked_pool as masked_pool
    from jaxsparse.ops.pack_tokens.api import pack_tokens as pack_tokens
    from jaxsparse.ops.pack_tokens.api import unpack_tokens as unpack_tokens
    from jaxsparse.ops.pruned_conv.api import pruned_conv as pruned_conv
    from jaxsparse.ops.pruned_matmul.api import pruned_matmul as pruned_matmul
    from jaxsparse.ops.ring_attention.api import ring_attention as ring_attention
    from jaxsparse.ops.route.api import Routing as Routing
    from jaxsparse.ops.route.api import route as route
    from jaxsparse.ops.sparse_attention.api import sparse_attention as sparse_attention
    from jaxsparse.ops.sparse_ffn.api import sparse_ffn as sparse_ffn
    from jaxsparse.pruned.model.plan import prune_model as prune_model

__all__ = [
    "BlockMask",
    "DISABLE_JAX_EXPORT_CHECKS",
    "Exchange",
    "KeptBlocks",
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
    "combine",
    "config",
    "create_block_mask",
    "dispatch",
    "explain",
    "grouped_matmul",
    "kept_blocks",
    "kept_matmul",
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
    "record_masks",
    "recorder",
    "ring_attention",
    "route",
    "show",
    "sparse_attention",
    "sparse_ffn",
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


if not TYPE_CHECKING:  # checkers see the imports above, and refuse other names
    #: What is not imported above is an operation, or `prune_model`.
    _LATE = dict.fromkeys([*__all__, "ops"], "jaxsparse.ops") | {"prune_model": "jaxsparse.pruned"}
    __getattr__ = lazy(__name__, _LATE)
