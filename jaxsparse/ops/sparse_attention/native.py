"""`sparse_attention` and its gradient on their native handlers: operands, attributes, workspace."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.dtypes import DTYPES
from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.ops.sparse_attention.params import AttentionParams, Backward, Forward
from jaxsparse.select.sparse_attention import NUMBERS


#: Bytes of the counter that hands out query tiles.
_COUNTER = 4


def forward(
    p: AttentionParams, platform: str, variant: str, *args: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One call of `variant`: (out, lse)."""
    a = Forward(*args)
    batch, q_len, heads, _ = a.q.shape
    out, lse, _ = ffi_call(
        "jaxsparse_sparse_attention",
        [
            ((batch, q_len, heads, a.v.shape[3]), a.q.dtype),
            ((batch, heads, q_len), np.float32),
            ((_COUNTER if variant == "wgmma" else 0,), np.uint8),
        ],
        *map(_present, a),
        variant=NUMBERS[platform][variant],
        **_attributes(p),
    )
    return out, lse


def backward(
    p: AttentionParams, platform: str, variant: str, *args: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One call of the gradient: (dq, dk, dv)."""
    a = Backward(*args)
    dq, dk, dv, _ = ffi_call(
        "jaxsparse_sparse_attention_grad",
        [*((x.shape, x.dtype) for x in (a.q, a.k, a.v)), ((_workspace(platform, a),), np.uint8)],
        *map(_present, a),
        variant=0 if platform == "cpu" else min(NUMBERS[platform][variant], 0),
        **_attributes(p),
    )
    return dq, dk, dv


def _workspace(platform: str, a: Backward) -> int:
    if platform == "cpu":
        return 0
    batch, q_len, heads, depth = a.q.shape
    kv_len, kv_heads, v_depth = a.v.shape[1:]
    sizes = (batch, q_len, kv_len, heads, kv_heads, depth, v_depth)
    return native(platform).sparse_attention_grad_workspace(sizes, DTYPES[a.q.dtype.name])


def _attributes(p: AttentionParams) -> dict[str, Any]:
    return {
        "block_q": p.block_size[0],
        "block_kv": p.block_size[1],
        "scale": p.scale,
        "soft_cap": p.soft_cap,
        "precision": int(p.precision == "highest"),
    }


def _present(value: jax.Array | None) -> jax.Array:
    return jnp.zeros(0, jnp.float32) if value is None else value
