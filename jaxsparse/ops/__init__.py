"""The public operations, one file an op."""

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

__all__ = [
    "Exchange",
    "Routing",
    "bounded_matmul",
    "combine",
    "dispatch",
    "grouped_matmul",
    "kept_matmul",
    "masked_conv",
    "masked_conv_stack",
    "masked_dense",
    "masked_matmul",
    "masked_norm",
    "masked_pool",
    "pack_tokens",
    "pruned_conv",
    "pruned_matmul",
    "ring_attention",
    "route",
    "sparse_attention",
    "sparse_ffn",
    "token_index",
    "unpack_tokens",
]
