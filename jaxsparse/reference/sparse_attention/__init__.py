"""Block-sparse attention and its gradient in plain jnp."""

from jaxsparse.reference.sparse_attention.forward import sparse_attention as sparse_attention
from jaxsparse.reference.sparse_attention.gradient import (
    sparse_attention_grad as sparse_attention_grad,
)

__all__ = ["sparse_attention", "sparse_attention_grad"]
