"""`sparse_attention`: the public function. Checks at trace time, then hands arrays to the core."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import check_bool
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import plan
from jaxsparse.index.blocks import BlockMask
from jaxsparse.ops.sparse_attention.checks import (
    check_bias,
    check_complete,
    check_dropout,
    check_lengths,
    check_mask,
    check_options,
    check_shared,
    check_slopes,
    check_tokens,
)
from jaxsparse.ops.sparse_attention.core import AttentionParams, Mask, attend
from jaxsparse.ops.sparse_attention.other_names import answers_other_names
from jaxsparse.ops.sparse_attention.run import OFFERED, describe
from jaxsparse.select.explain import Counted, record
from jaxsparse.select.work import Work, result, work

Attended = Float[Array, "B T N Hv"]
LogSumExp = Float[Array, "B N T"]


@overload
def sparse_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    *,
    scale: float | None = ...,
    bias: Float[ArrayLike, "#B #N #T #S"] | None = ...,
    soft_cap: float | None = ...,
    slopes: Float[ArrayLike, "N"] | None = ...,
    return_lse: Literal[False] = ...,
    precision: jax.lax.PrecisionLike = ...,
    dropout: float | None = ...,
    implementation: Implementation = ...,
) -> Attended: ...


@overload
def sparse_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    *,
    scale: float | None = ...,
    bias: Float[ArrayLike, "#B #N #T #S"] | None = ...,
    soft_cap: float | None = ...,
    slopes: Float[ArrayLike, "N"] | None = ...,
    return_lse: Literal[True],
    precision: jax.lax.PrecisionLike = ...,
    dropout: float | None = ...,
    implementation: Implementation = ...,
) -> tuple[Attended, LogSumExp]: ...


@answers_other_names
@takes_variables
def sparse_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    *,
    scale: float | None = None,
    bias: Float[ArrayLike, "#B #N #T #S"] | None = None,
    soft_cap: float | None = None,
    slopes: Float[ArrayLike, "N"] | None = None,
    return_lse: bool = False,
    precision: jax.lax.PrecisionLike = None,
    dropout: float | None = None,
    implementation: Implementation = None,
) -> Attended | tuple[Attended, LogSumExp]:
    """Attention that computes only the blocks of scores that a mask keeps.

    It is `softmax(scale * q k^T + bias, where=mask) v`, as `jax.nn.dot_product_attention` computes.
    Blocks that the mask leaves out are neither computed nor read. The mask is data: one trace
    serves every mask of a shape. The score of query t and key s in head n is `scale * q[t].k[s]`;
    with a soft cap, `soft_cap * tanh(score / soft_cap)` of that; then `slopes[n] * (s - t)` and
    `bias` are added. Sums, softmax and the log-sum-exp are in float32, and the result is rounded
    once. A query that attends to nothing gives 0, and -inf as its log-sum-exp.

    These may hold NaN: keys and values that no query of a block of queries attends to, bias at
    positions that the mask leaves out, and queries that attend to nothing. NaN in a key that some
    queries attend to may reach the other queries of their block.

    Differentiable in q, k and v, also through the log-sum-exp; the gradient kernel skips the same
    blocks. Forward mode and second derivatives compute the dense scores, [B, N, T, S]. A mesh
    splits the batch and the heads.

    Args:
        q: float32, bfloat16 or float16 [B, T, N, H].
        k: same dtype, [B, S, K, H], where K divides N: each head of k and v serves N / K
            consecutive heads of q.
        v: same dtype, [B, S, K, Hv].
        block_mask: a `js.BlockMask` of T queries and S keys; its batch is B or 1, its heads N or 1.
        scale: a static number; None: 1 / sqrt(H).
        bias: float32 or the dtype of q, [B or 1, N or 1, T or 1, S or 1]. It cannot be
            differentiated: train it with `jax.nn.dot_product_attention`.
        soft_cap: a positive static number, or None.
        slopes: floats [N], ALiBi's slopes; they cannot be differentiated.
        return_lse: whether to return the log-sum-exp of the scores, too.
        precision: as in jax.lax. By default float32 is multiplied as TF32 on a GPU; "highest"
            multiplies in float32.
        dropout: None or 0; dropout is not supported. Apply it to the result instead.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [B, T, N, Hv] in the dtype of q; with `return_lse` also float32[B, N, T].

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    check_dropout(dropout)
    return_lse = check_bool("return_lse", return_lse)
    mask = check_mask(block_mask)
    q, k, v = check_tokens(q, k, v, functools.partial(check_lengths, mask))
    check_shared(q, mask)
    implementations = plan("sparse_attention", implementation, OFFERED)
    params = check_options(q, mask, scale, soft_cap, precision, implementation)
    slopes = None if slopes is None else check_slopes("sparse_attention", slopes, q.shape[2])
    bias = None if bias is None else check_bias("sparse_attention", bias, q, k.shape[1])
    check_complete(mask)
    blocks, added = math.prod(mask.kv_blocks.shape), slopes is not None or bias is not None
    record(
        "sparse_attention",
        f"{q.dtype.name}{list(q.shape)} over {list(k.shape)} in {list(mask.block_size)}",
        implementations,
        lambda name: describe(params, name, (q, k, v), blocks, mask.slots, added),
        lambda: Counted(blocks, mask.kv_counts.sum(dtype=jnp.int32), mask.overflow),
        "blocks",
        lambda: _work(q, k, v, mask),
    )
    arrays = Mask(*(getattr(mask, name) for name in Mask._fields))
    out, lse = _run(params, *lift(q, k, v, arrays, slopes, bias))
    return (out, lse) if return_lse else out


def _work(q: jax.Array, k: jax.Array, v: jax.Array, mask: BlockMask) -> Work:
    """Both products of a mask that lists every block."""
    pairs = q.shape[0] * q.shape[2] * q.shape[1] * k.shape[1]
    out = result((*q.shape[:3], v.shape[3]), q.dtype)
    lists = mask.kv_counts, mask.kv_blocks, mask.kv_slots, mask.words
    return work(pairs * (q.shape[3] + v.shape[3]), q, k, v, lists, out)


@functools.partial(jax.jit, static_argnums=0)
def _run(
    params: AttentionParams,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: Mask,
    slopes: jax.Array | None,
    bias: jax.Array | None,
) -> Any:
    return attend(params, q, k, v, mask, slopes, bias)
