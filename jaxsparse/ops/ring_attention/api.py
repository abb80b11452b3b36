"""`ring_attention`: the public function. Checks at trace time, then hands arrays to the core."""

from __future__ import annotations

import functools
import math
from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import check_bool
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.mesh import AxisName, devices_along
from jaxsparse.ffi.platform import plan, runs_as
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.blocks.lists import NONE
from jaxsparse.index.blocks.parts import codes_at
from jaxsparse.ops.ring_attention.checks import check_complete, check_lengths
from jaxsparse.ops.ring_attention.core import Ring, Rows, attend
from jaxsparse.ops.sparse_attention.checks import (
    check_bias,
    check_dropout,
    check_mask,
    check_options,
    check_shared,
    check_slopes,
    check_tokens,
)
from jaxsparse.ops.sparse_attention.other_names import answers_other_names
from jaxsparse.ops.sparse_attention.run import OFFERED, describe
from jaxsparse.select.explain import Counted, record
from jaxsparse.select.work import Work, result, work

runs_as("ring_attention", "sparse_attention")

Attended = Float[Array, "B T N Hv"]
LogSumExp = Float[Array, "B N T"]


@overload
def ring_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    axis_name: AxisName,
    *,
    scale: float | None = ...,
    bias: Float[ArrayLike, "#B #N #T #D*S"] | None = ...,
    soft_cap: float | None = ...,
    slopes: Float[ArrayLike, "N"] | None = ...,
    return_lse: Literal[False] = ...,
    precision: jax.lax.PrecisionLike = ...,
    dropout: float | None = ...,
    implementation: Implementation = ...,
) -> Attended: ...


@overload
def ring_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    axis_name: AxisName,
    *,
    scale: float | None = ...,
    bias: Float[ArrayLike, "#B #N #T #D*S"] | None = ...,
    soft_cap: float | None = ...,
    slopes: Float[ArrayLike, "N"] | None = ...,
    return_lse: Literal[True],
    precision: jax.lax.PrecisionLike = ...,
    dropout: float | None = ...,
    implementation: Implementation = ...,
) -> tuple[Attended, LogSumExp]: ...


@answers_other_names
@takes_variables
def ring_attention(
    q: Float[ArrayLike, "B T N H"],
    k: Float[ArrayLike, "B S K H"],
    v: Float[ArrayLike, "B S K Hv"],
    block_mask: BlockMask,
    axis_name: AxisName,
    *,
    scale: float | None = None,
    bias: Float[ArrayLike, "#B #N #T #D*S"] | None = None,
    soft_cap: float | None = None,
    slopes: Float[ArrayLike, "N"] | None = None,
    return_lse: bool = False,
    precision: jax.lax.PrecisionLike = None,
    dropout: float | None = None,
    implementation: Implementation = None,
) -> Attended | tuple[Attended, LogSumExp]:
    """`js.sparse_attention` of a sequence that is split over the D devices of a mesh axis. Call it
    inside `jax.shard_map`. Device i holds the queries [i * T, (i + 1) * T) and the keys
    [i * S, (i + 1) * S).

        spec = jax.P(None, "seq")
        attend = lambda q, k, v, mask: js.ring_attention(q, k, v, mask, "seq")
        run = jax.shard_map(attend, in_specs=(spec, spec, spec, jax.P()), out_specs=spec)
        out = run(q, k, v, js.block_masks.causal(length))

    Keys and values go around the devices in D steps (`jax.lax.ppermute`); no device holds more than
    its own and those of a step. Each step computes the blocks that the mask keeps of the device's
    queries and the keys of the step, and steps are merged in float32 by their log-sum-exp. A step
    without kept blocks costs its transfer, and writing zeros. The gradient is a second ring, in
    which float32 gradients of the keys and values are passed on with them. The result of each step
    is rounded to the dtype of q; everything else is as in `js.sparse_attention`.

    The devices wait for each other in every step, so the slowest one sets the time. With a causal
    mask the last device has D times the blocks of the first: give device i the chunks i and
    2 * D - 1 - i of 2 * D chunks (`BlockMask.take` permutes the mask; "Several devices" in the
    documentation shows how), and all have the same number in every step.

    Differentiable in q, k and v, also through the log-sum-exp. Forward mode and second derivatives
    compute the dense scores of a step, [B, N, T, S].

    Args:
        q: float32, bfloat16 or float16 [B, T, N, H], this device's queries.
        k: same dtype, [B, S, K, H], this device's keys; K divides N, as in `js.sparse_attention`.
        v: same dtype, [B, S, K, Hv], this device's values.
        block_mask: a `js.BlockMask` of all D * S keys, and either of this device's T queries or of
            all D * T queries, of which the device uses its own rows; its batch is B or 1, its heads
            N or 1. S is a multiple of its block of keys; with a mask of all queries, T is a
            multiple of its block of queries.
        axis_name: the name of the mesh axis, or a tuple of names.
        scale: a static number; None: 1 / sqrt(H).
        bias: float32 or the dtype of q, [B or 1, N or 1, T or 1, D * S or 1]: of this device's
            queries and all keys. It cannot be differentiated.
        soft_cap: a positive static number, or None.
        slopes: floats [N], ALiBi's slopes; positions are those in the whole sequence, in the order
            of the devices. They cannot be differentiated.
        return_lse: whether to return the log-sum-exp of the scores over all keys, too.
        precision: as in `js.sparse_attention`.
        dropout: None or 0; dropout is not supported. Apply it to the result instead.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [B, T, N, Hv] in the dtype of q; with `return_lse` also float32[B, N, T].

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument.
        ValueError: if a shard ends inside a block, if no `jax.shard_map` around the call has the
            axis, or if a named implementation cannot run.
    """
    check_dropout(dropout)
    return_lse = check_bool("return_lse", return_lse)
    devices = devices_along("ring_attention", axis_name, "the queries and keys")
    mask = check_mask(block_mask)
    q, k, v = check_tokens(q, k, v, functools.partial(check_lengths, mask, devices))
    check_shared(q, mask)
    implementations = plan("ring_attention", implementation, OFFERED)
    attention = check_options(q, mask, scale, soft_cap, precision, implementation)
    slopes = None if slopes is None else check_slopes("ring_attention", slopes, q.shape[2])
    bias = None if bias is None else check_bias("ring_attention", bias, q, devices * k.shape[1])
    me, codes = jax.lax.axis_index(axis_name), mask.codes()
    if mask.q_len != q.shape[1]:
        count = q.shape[1] // mask.block_size[0]
        codes = codes_at(codes, me * count + jnp.arange(count, dtype=jnp.int32), 2)
    blocks, added = math.prod(codes.shape), slopes is not None or bias is not None
    record(
        "ring_attention",
        f"{q.dtype.name}{list(q.shape)} over {list(k.shape)} in {list(mask.block_size)}, "
        f"on each of {devices} devices",
        implementations,
        lambda name: describe(attention, name, (q, k, v), blocks // devices, mask.slots, added),
        lambda: Counted(blocks, (codes != NONE).sum(dtype=jnp.int32), mask.overflow),
        "blocks",
        lambda: _work(q, k, v, codes, devices),
    )
    rows = Rows(me, codes, mask.words, slopes, bias)
    check_complete(mask.overflow)
    *tokens, rows = lift(q, k, v, rows)
    out, lse = attend(Ring(axis_name, devices, attention), *tokens, rows)
    return (out, lse) if return_lse else out


def _work(q: jax.Array, k: jax.Array, v: jax.Array, codes: jax.Array, devices: int) -> Work:
    """Both products of one device, whose mask lists every block; each step reads other keys."""
    pairs = q.shape[0] * q.shape[2] * q.shape[1] * devices * k.shape[1]
    out = result((*q.shape[:3], v.shape[3]), q.dtype)
    return work(pairs * (q.shape[3] + v.shape[3]), q, *[k, v] * devices, codes, out)
