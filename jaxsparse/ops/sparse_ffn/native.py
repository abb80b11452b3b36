"""`sparse_ffn` and the products of its gradient on their native handlers."""

import jax
import numpy as np

from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.ops.sparse_ffn.params import FfnParams


def few_tokens(
    p: FfnParams,
    platform: str,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    w_down: jax.Array,
) -> jax.Array:
    """One call for all of [tokens, d] -> [tokens, d_out]."""
    top_k = p.top_k if p.top_k < w_up.shape[1] else 0
    sizes = x.shape[0], *w_down.shape
    scratch = native("cuda").sparse_ffn_workspace(*sizes) if platform == "cuda" else 0
    return ffi_call(
        "jaxsparse_sparse_ffn",
        [((x.shape[0], w_down.shape[1]), x.dtype), ((scratch,), np.uint8)],
        x,
        w_up,
        absent(w_gate, x.dtype, (0, 0)),
        w_down,
        squared=p.activation == "relu2",
        top_k=top_k,
    )[0]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """One call for a @ b."""
    shape = (a.shape[0], b.shape[1])
    return ffi_call("jaxsparse_sparse_ffn_product", [(shape, a.dtype)], a, b)[0]
