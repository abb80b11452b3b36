"""Layers for flax.linen."""

from jaxsparse.nn.linen.attention import SparseAttention as SparseAttention
from jaxsparse.nn.linen.masked_conv import MaskedConv as MaskedConv
from jaxsparse.nn.linen.masked_dense import MaskedDense as MaskedDense
from jaxsparse.nn.linen.moe import MoE as MoE
from jaxsparse.nn.linen.pruned import PrunedConv as PrunedConv
from jaxsparse.nn.linen.pruned import PrunedDense as PrunedDense

__all__ = ["MaskedConv", "MaskedDense", "MoE", "PrunedConv", "PrunedDense", "SparseAttention"]
