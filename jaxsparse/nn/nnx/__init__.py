"""Layers for flax.nnx."""

from jaxsparse.nn.nnx.attention import SparseAttention as SparseAttention
from jaxsparse.nn.nnx.masked_conv import MaskedConv as MaskedConv
from jaxsparse.nn.nnx.masked_dense import MaskedDense as MaskedDense
from jaxsparse.nn.nnx.moe import MoE as MoE
from jaxsparse.nn.nnx.pruned import PrunedConv as PrunedConv
from jaxsparse.nn.nnx.pruned import PrunedDense as PrunedDense

__all__ = ["MaskedConv", "MaskedDense", "MoE", "PrunedConv", "PrunedDense", "SparseAttention"]
