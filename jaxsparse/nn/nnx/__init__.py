"""Layers for flax.nnx."""

from jaxsparse.nn.nnx.attention import SparseAttention as SparseAttention
from jaxsparse.nn.nnx.bounded import BoundedDense as BoundedDense
from jaxsparse.nn.nnx.ffn import SparseFFN as SparseFFN
from jaxsparse.nn.nnx.masked_conv import MaskedConv as MaskedConv
from jaxsparse.nn.nnx.masked_dense import MaskedDense as MaskedDense
from jaxsparse.nn.nnx.masked_norm import MaskedNorm as MaskedNorm
from jaxsparse.nn.nnx.moe import MoE as MoE
from jaxsparse.nn.nnx.pruned import PrunedConv as PrunedConv
from jaxsparse.nn.nnx.pruned import PrunedDense as PrunedDense
from jaxsparse.nn.nnx.sequential import Sequential as Sequential

__all__ = [
    "BoundedDense",
    "MaskedConv",
    "MaskedDense",
    "MaskedNorm",
    "MoE",
    "PrunedConv",
    "PrunedDense",
    "Sequential",
    "SparseAttention",
    "SparseFFN",
]
