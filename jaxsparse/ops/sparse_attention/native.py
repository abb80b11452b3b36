"""`sparse_attention` and its gradient on their native handlers: operands, attributes, workspace."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ops.sparse_attention.params import AttentionParams, Backward, Forward
from jaxsparse.select.sparse_attention import NUMBERS

Arrays = TypeVar("Arrays", bound=Forward | Backward)


#: The CUDA kernels take heads of whole vectors: others are padded with zeros.
VECTOR = 8


#: Bytes of the counter that hands out query tiles, and what sums in a workspace are aligned to.
_COUNTER, _ALIGN = 4, 256

#: Lists of keys are split into as many CTAs as fill a large GPU some four times, but there is
#: no more than one for each so many keys; a CTA takes so many rows of queries.
_SPLIT_CTAS, _SPLIT_KEYS, _SPLIT_ROWS = 1536, 256, 32


def forward(
    p: AttentionParams, platform: str, variant: str, *args: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One call of `variant`: (out, lse)."""
    a, v_depth = _padded(Forward(*args), platform), args[2].shape[3]
    batch, q_len, heads, _ = a.q.shape
    out, lse, _ = ffi_call(
        "jaxsparse_sparse_attention",
        [
            ((batch, q_len, heads, a.v.shape[3]), a.q.dtype),
            ((batch, heads, q_len), np.float32),
            ((_scratch(variant, a),), np.uint8),
        ],
        *(absent(array, np.float32) for array in a),
        variant=NUMBERS[platform][variant],
        **_attributes(p),
    )
    return out[..., :v_depth], lse


def _scratch(variant: str, a: Forward) -> int:
    """Bytes of a forward call's workspace."""
    if variant in ("wgmma", "wgmma_reduce"):
        return _COUNTER
    if variant != "split":
        return 0
    (batch, q_len, heads, _), (_, kv_len, kv_heads, v_depth) = a.q.shape, a.v.shape
    pack = heads // kv_heads if a.kv_counts.shape[1] == 1 else 1
    ctas = batch * (heads // pack) * -(-pack * q_len // _SPLIT_ROWS)
    splits = max(1, min(_SPLIT_CTAS // ctas, -(-kv_len // _SPLIT_KEYS)))
    return 4 * splits * batch * heads * q_len * (v_depth + 1) if splits > 1 else 0


def backward(
    p: AttentionParams, platform: str, variant: str, *args: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One call of `variant` for the gradient: (dq, dk, dv)."""
    a, depths = _padded(Backward(*args), platform), [x.shape[3] for x in args[:3]]
    batch, q_len, heads, _ = a.q.shape
    # A row's delta is a float; a counter for the tiles of keys, one for those of queries.
    scratch = 4 * batch * heads * q_len + 2 * _COUNTER if platform == "cuda" else 0
    if variant == "wgmma_reduce":  # dq in float32, 16 queries to a strip
        scratch += -scratch % _ALIGN + 4 * batch * heads * -(-q_len // 16) * 16 * a.q.shape[3]
    *found, _ = ffi_call(
        "jaxsparse_sparse_attention_grad",
        [*((x.shape, x.dtype) for x in (a.q, a.k, a.v)), ((scratch,), np.uint8)],
        *(absent(array, np.float32) for array in a),
        variant=NUMBERS[platform][variant],
        **_attributes(p),
    )
    dq, dk, dv = (x[..., :depth] for x, depth in zip(found, depths, strict=True))
    return dq, dk, dv


def _padded(arrays: Arrays, platform: str) -> Arrays:
    """The arrays with heads of whole vectors, where the platform wants them."""
    if platform != "cuda":
        return arrays
    heads = ("q", "k", "v", "out", "gout")
    return arrays._replace(**{n: _pad(v) for n, v in arrays._asdict().items() if n in heads})


def _pad(value: jax.Array) -> jax.Array:
    missing = -value.shape[3] % VECTOR
    return jnp.pad(value, ((0, 0), (0, 0), (0, 0), (0, missing))) if missing else value


def _attributes(p: AttentionParams) -> dict[str, Any]:
    return {
        "block_q": p.block_size[0],
        "block_kv": p.block_size[1],
        "scale": p.scale,
        "soft_cap": p.soft_cap,
        "precision": int(p.precision == "highest"),
    }
