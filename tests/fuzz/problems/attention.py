"""Attention under a mask of blocks."""

from typing import Any

import numpy as np

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits


def sparse_attention(draw: Draw) -> Problem:
    """Grouped heads, masks of batch and heads, and every option of the scores."""
    dtype, batch, kv_heads, group = draw.dtype(), draw.lead(2), draw.size(3), draw.size(3)
    rows, columns, heads = draw.size(70), draw.size(70), kv_heads * group
    depth, wide = (draw.pick(1, 8, 16, 33, 64) for _ in "kv")
    block = (16 * draw.size(3), 16 * draw.size(3))
    cap, slopes, lse = draw.pick(None, None, 2.0), draw.chance(0.25), draw.chance(0.4)
    per = (draw.pick(1, batch), draw.pick(1, heads))
    scale = draw.pick(None, float(draw.rng.uniform(0.05, 1.0)))
    shape = (batch, heads, rows, columns)
    of = tuple(draw.pick(1, n) for n in shape) if draw.chance(0.3) else None
    floats = {
        "q": ((batch, rows, heads, depth), dtype),
        "k": ((batch, columns, kv_heads, depth), dtype),
        "v": ((batch, columns, kv_heads, wide), dtype),
    }
    options = {"scale": scale, "soft_cap": cap, "return_lse": lse}

    def call(q: Any, k: Any, v: Any, keep: Any, **more: Any) -> Any:
        mask = js.BlockMask.from_dense(keep, block)
        return js.sparse_attention(q, k, v, mask, **options, **more)

    def meaning(q: Any, k: Any, v: Any, keep: Any, bias: Any = 0.0, slopes: Any = None) -> Any:
        factor = depth**-0.5 if scale is None else scale
        more = {"scale": factor, "cap": cap, "slopes": slopes, "bias": bias}
        found = oracle.attention(q, k, v, keep, **more)
        return found if lse else found[0]

    def data(rng: np.random.Generator) -> Arrays:
        found = {"keep": bits(rng, (*per, rows, columns))}
        if slopes:
            found["slopes"] = rng.standard_normal(heads).astype(np.float32) / 16
        if of:
            found["bias"] = rng.standard_normal(of).astype(np.float32)
        return found

    def unread(operands: Arrays) -> Arrays:
        none = ~np.broadcast_to(operands["keep"], shape).any(2)
        none = none.reshape(batch, kv_heads, group, columns).all(2).swapaxes(1, 2)
        # A key that no query attends to, in any head: its block of queries reads no other either.
        return {"v": np.broadcast_to(none[..., None], operands["v"].shape)}

    return Problem(
        f"{floats}, block {block}, mask of {per}, {options}, bias {of}, slopes {slopes}",
        call,
        meaning,
        floats,
        depth + columns,
        data,
        # A row without keys has -inf as its log-sum-exp, which differences cannot tell.
        smooth=not lse,
        split={"q": 0, "k": 0, "v": 0},
        unread=unread,
        loose=4.0,
    )


OPS = {"sparse_attention": sparse_attention}
