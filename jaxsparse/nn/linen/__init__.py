"""Layers for flax.linen."""

from jaxsparse.nn.linen.attention import SparseAttention as SparseAttention
from jaxsparse.nn.linen.bounded import BoundedDense as BoundedDense
from jaxsparse.nn.linen.ffn import SparseFFN as SparseFFN
from jaxsparse.nn.linen.masked_conv import MaskedConv as MaskedConv
from jaxsparse.nn.linen.masked_dense import MaskedDense as MaskedDense
from jaxsparse.nn.linen.masked_norm import MaskedNorm as MaskedNorm
from jaxsparse.nn.linen.moe import MoE as MoE
from jaxsparse.nn.linen.pruned import PrunedConv as PrunedConv
from jaxsparse.nn.linen.pruned import PrunedDense as PrunedDense
from jaxsparse.nn.linen.sequential import Sequential as Sequential

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
