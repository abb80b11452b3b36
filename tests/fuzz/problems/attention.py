"""Attention under a mask of blocks."""

from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

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


def ring_attention(draw: Draw) -> Problem:
    """Queries and keys over as many devices as JAX sees, four at most; the mask is of all."""
    devices = min(4, jax.device_count())
    dtype, batch, kv_heads, group = draw.dtype(), draw.size(2), draw.size(2), draw.size(3)
    block = (16 * draw.size(2), 16 * draw.size(2))
    rows, columns = (devices * size * draw.size(3) for size in block)
    heads, depth, wide = kv_heads * group, draw.pick(1, 8, 33), draw.pick(8, 16)
    per = (draw.pick(1, batch), draw.pick(1, heads))
    cap, sloped, biased = draw.pick(None, 2.0), draw.chance(0.25), draw.chance(0.3)
    floats = {
        "q": ((batch, rows, heads, depth), dtype),
        "k": ((batch, columns, kv_heads, depth), dtype),
        "v": ((batch, columns, kv_heads, wide), dtype),
    }
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((devices,), ("seq",), auto, devices=jax.devices()[:devices])
    by, of_bias = P(None, "seq"), P(None, None, "seq")

    def local(q: Any, k: Any, v: Any, mask: Any, slopes: Any, bias: Any) -> Any:
        given = {"slopes": slopes, "bias": bias, "soft_cap": cap}
        return js.ring_attention(q, k, v, mask, "seq", **given)

    def call(q: Any, k: Any, v: Any, keep: Any, slopes: Any = None, bias: Any = None) -> Any:
        mask, specs = js.BlockMask.from_dense(keep, block), (by, by, by, P(), P(), of_bias)
        run = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=by)
        return run(q, k, v, mask, slopes, bias)

    def meaning(q: Any, k: Any, v: Any, keep: Any, bias: Any = 0.0, slopes: Any = None) -> Any:
        more = {"scale": depth**-0.5, "cap": cap, "slopes": slopes, "bias": bias}
        return oracle.attention(q, k, v, keep, **more)[0]

    def data(rng: np.random.Generator) -> Arrays:
        found = {"keep": bits(rng, (*per, rows, columns))}
        if sloped:
            found["slopes"] = rng.standard_normal(heads).astype(np.float32) / 16
        if biased:
            found["bias"] = rng.standard_normal((1, heads, rows, columns)).astype(np.float32)
        return found

    return Problem(
        f"{floats}, block {block}, mask of {per}, cap {cap}, bias {biased}, slopes {sloped}",
        call,
        meaning,
        floats,
        depth + columns,
        data,
        loose=6.0,
    )


OPS = {"ring_attention": ring_attention, "sparse_attention": sparse_attention}
