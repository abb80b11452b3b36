"""Operations on positions and tokens that count."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits


def masked_dense(draw: Draw) -> Problem:
    dtype = draw.dtype()
    # A mesh of explicit axes does not split the last axis of a mask.
    lead = (
        draw.lead(9),
        *(draw.size(9) for _ in range(1 if draw.way == "mesh" else draw.pick(0, 1))),
    )
    depth, outputs = draw.size(90), draw.size(90)
    activation = draw.pick(None, "silu", "gelu", "relu")
    floats = {"x": ((*lead, depth), dtype), "w": ((depth, outputs), dtype)}
    optional = {"bias": ((outputs,), dtype), "base": ((*lead, outputs), dtype)}
    floats |= {name: made for name, made in optional.items() if draw.chance(0.35)}
    indexed = draw.chance(0.3)

    def call(x: Any, w: Any, mask: Any, **more: Any) -> Any:
        given = js.token_index(mask) if indexed else mask
        return js.masked_dense(x, w, given, activation=activation, **more)

    def meaning(x: Any, w: Any, mask: Any, bias: Any = 0, base: Any = 0) -> Any:
        return np.where(mask[..., None], oracle.activated(x @ w + bias, activation), base)

    def edges(x: Any, w: Any, mask: Any, bias: Any = 0, base: Any = 0) -> Any:
        return oracle.edges((x @ w + bias)[mask], activation)

    return Problem(
        f"{floats}, {activation}{', index' * indexed}",
        call,
        meaning,
        floats,
        depth,
        lambda rng: {"mask": bits(rng, lead)},
        edges=edges if activation == "relu" else None,
        split=dict.fromkeys({"x", "base"} & {*floats} | {"mask"}, 0),
        unread=lambda at: {"x": np.broadcast_to(~at["mask"][..., None], at["x"].shape)},
    )


def masked_norm(draw: Draw) -> Problem:
    dtype, kind = draw.dtype(), draw.pick("batch", "group", "layer")
    groups = draw.size(4) if kind == "group" else 1
    lead = (draw.lead(4), *(draw.size(8) for _ in range(int(draw.rng.integers(3)))))
    channels = groups * draw.size(16)
    floats = {"x": ((*lead, channels), dtype)}
    optional = {"scale": channels, "bias": channels, "base": None}
    for name, width in optional.items():
        if draw.chance(0.5):
            floats[name] = ((*lead, channels) if width is None else (width,), dtype)
    options = {"kind": kind, "groups": groups if kind == "group" else None, "epsilon": 0.1}

    def by(moments: Any, x: Any, mask: Any, scale: Any = 1, bias: Any = 0, base: Any = 0) -> Any:
        mean, var = moments
        return np.where(mask[..., None], (x - mean) / np.sqrt(var + 0.1) * scale + bias, base)

    def meaning(x: Any, mask: Any, **more: Any) -> Any:
        return by(oracle.moments(x, mask, kind, groups), x, mask, **more)

    def with_fixed_moments(x: Any, mask: Any, **more: Any) -> Any:
        return functools.partial(by, oracle.moments(x, mask, kind, groups))

    return Problem(
        f"{floats}, {options}",
        lambda x, mask, **more: js.masked_norm(x, mask, **options, **more),
        meaning,
        floats,
        int(np.prod(lead)) * channels,
        lambda rng: {"mask": bits(rng, lead)},
        split=dict.fromkeys({"x", "base"} & {*floats} | {"mask"}, 0),
        unread=lambda at: {"x": np.broadcast_to(~at["mask"][..., None], at["x"].shape)},
        parts=(with_fixed_moments,),
    )


def masked_pool(draw: Draw) -> Problem:
    """`js.mask.pool`, too, which says what the windows hold."""
    dtype, kind, shape = draw.dtype(), draw.pick("max", "avg"), (draw.lead(3), *draw.pair(14))
    window, geometry = draw.pair(4), (draw.pair(3), draw.pads(), (1, 1))
    shape, channels = (shape[0], shape[1] + 3, shape[2] + 3), draw.size(9)
    out = (shape[0], *oracle.windows(shape[1:], window, geometry), channels)
    floats = {"x": ((*shape, channels), dtype)}
    if draw.chance(0.4):
        floats["base"] = (out, dtype)
    options = {"strides": geometry[0], "padding": geometry[1]}

    def call(x: Any, mask: Any, base: Any = None) -> Any:
        y = js.masked_pool(x, mask, window, **options, kind=kind, base=base)
        return y, js.mask.pool(mask, window, **options), js.mask.propagate(mask, window, **options)

    def meaning(x: Any, mask: Any, base: Any = 0) -> Any:
        met = oracle.reached(mask, window, geometry)
        top, total, number = np.full(out, -np.inf), np.zeros(out), np.zeros((*out[:3], 1))
        taps = (oracle.taps(v, window, geometry) for v in (x, mask))
        for (_, values), (_, active) in zip(*taps, strict=True) if 0 not in out else ():
            active = active[..., None]
            top = np.where(active, np.maximum(top, values), top)
            total, number = total + np.where(active, values, 0), number + active
        y = top if kind == "max" else total / np.maximum(number, 1)
        return np.where(met[..., None], y, base), met, met

    return Problem(
        f"{floats}, {kind} {window}, {options}",
        call,
        meaning,
        floats,
        window[0] * window[1],
        lambda rng: {"mask": bits(rng, shape)},
        smooth=kind == "avg",
        split=dict.fromkeys(["x", "mask", *({"base"} & {*floats})], 0),
        unread=lambda at: {"x": np.broadcast_to(~at["mask"][..., None], at["x"].shape)},
    )


def pack_tokens(draw: Draw) -> Problem:
    """Packed, and put back; with room for all, or for some of them."""
    dtype, lead, depth = draw.dtype(), (draw.lead(12), draw.size(12)), draw.size(9)
    every = lead[0] * lead[1]
    capacity = None if draw.chance(0.5) else draw.size(every)
    room = capacity or every
    floats = {"x": ((*lead, depth), dtype), "base": ((*lead, depth), dtype)}

    def call(x: Any, mask: Any, base: Any) -> Any:
        packed, packing = js.pack_tokens(x, mask, capacity=capacity)
        back = js.unpack_tokens(packed * 2, packing, base=base)
        return packed, back, packing.overflow, packing.valid()

    def meaning(x: Any, mask: Any, base: Any) -> Any:
        at = np.flatnonzero(mask)[:room]
        packed = np.zeros((room, depth))
        packed[: len(at)] = x.reshape(-1, depth)[at]
        back = base.reshape(-1, depth).copy()
        back[at] = 2 * packed[: len(at)]
        valid = np.arange(room) < len(at)
        return packed, back.reshape(x.shape), np.bool_(mask.sum() > room), valid

    def unread(at: Arrays) -> Arrays:
        return {"x": np.broadcast_to(~at["mask"][..., None], at["x"].shape)}

    data = lambda rng: {"mask": bits(rng, lead)}  # noqa: E731
    text = f"{floats}, capacity {capacity}"
    split = dict.fromkeys(["x", "mask", "base"], 0)
    return Problem(text, call, meaning, floats, 1, data, split=split, explicit=False, unread=unread)


def pack_mask(draw: Draw) -> Problem:
    """Packed and unpacked; and what windows read."""
    shape, window = (draw.lead(3), draw.size(20), draw.size(70)), draw.pair(4)
    geometry = (draw.pair(3), draw.pads(), draw.pair(2))
    options = {"strides": geometry[0], "padding": geometry[1], "dilation": geometry[2]}
    spans = [(w - 1) * d + 1 for w, d in zip(window, geometry[2], strict=True)]
    large = (shape[0], *(n + s for n, s in zip(shape[1:], spans, strict=True)))
    out = (shape[0], *oracle.windows(large[1:], window, geometry))

    def call(mask: Any, after: Any) -> Any:
        words = js.pack_mask(mask)
        reach = js.mask.propagate(mask, window, **options)
        read = js.mask.needed(after, window, **options, in_shape=large[1:])
        return words, js.unpack_mask(words, large[2]), reach, read

    def meaning(mask: np.ndarray, after: np.ndarray) -> Any:
        wide = np.pad(mask, ((0, 0), (0, 0), (0, -mask.shape[2] % 32)))
        words = np.packbits(wide, axis=-1, bitorder="little").view("<u4")
        reach = oracle.reached(mask, window, geometry)
        return words, mask, reach, oracle.needed(after, large[1:], window, geometry)

    data = lambda rng: {"mask": bits(rng, large), "after": bits(rng, out)}  # noqa: E731
    split = {"mask": 0, "after": 0}
    return Problem(f"{large}, {window}, {options}", call, meaning, {}, 1, data, split=split)


def block_masks(draw: Draw) -> Problem:
    """Makers of block masks, joined."""
    rows, columns, batch = draw.size(70), draw.size(70), draw.lead(3)
    block = (16 * draw.size(4), 16 * draw.size(4))
    left, right, sign = draw.size(40) - 1, draw.size(40) - 1, draw.pick("&", "|")

    def call(keep: Any, offset: Any, lengths: Any) -> Any:
        given = js.BlockMask.from_dense(keep, block)
        window = js.block_masks.sliding_window(
            rows, columns, block, left=left, right=right, offset=offset
        )
        own = js.create_block_mask(
            lambda b, h, q, kv: kv < lengths[b], batch, None, rows, columns, block
        )
        both = (given & window) | own if sign == "|" else (given | window) & own
        return (
            both.to_dense(),
            both.overflow,
            js.block_masks.causal(rows, columns, block).to_dense(),
        )

    def meaning(keep: Any, offset: Any, lengths: Any) -> Any:
        q, kv = np.arange(rows)[:, None], np.arange(columns)
        at = q + offset[:, None, None, None]
        window = (kv >= at - left) & (kv <= at + right)
        own = np.broadcast_to(kv < lengths[:, None, None, None], (batch, 1, rows, columns))
        both = (keep & window) | own if sign == "|" else (keep | window) & own
        return both, np.bool_(False), (kv <= q)[None, None]

    def data(rng: np.random.Generator) -> Arrays:
        keep = bits(rng, (batch, 1, rows, columns))
        offset = rng.integers(0, 9, batch).astype(np.int32)
        return {
            "keep": keep,
            "offset": offset,
            "lengths": rng.integers(0, columns + 1, batch).astype(np.int32),
        }

    split = dict.fromkeys(["keep", "offset", "lengths"], 0)
    text = f"{batch}x{rows}x{columns} by {block}, {sign}"
    return Problem(text, call, meaning, {}, 1, data, split=split, explicit=False)


def lengths_mask(draw: Draw) -> Problem:
    """Lengths of any size."""
    batch, n = draw.lead(9), draw.size(50)

    def data(rng: np.random.Generator) -> Arrays:
        return {"lengths": rng.integers(-5, n + 9, batch).astype(np.int32)}

    return Problem(
        f"{batch}x{n}",
        lambda lengths: jnp.asarray(js.lengths_mask(lengths, n)),
        lambda lengths: np.arange(n) < lengths[:, None],
        {},
        1,
        data,
        split={"lengths": 0},
    )


OPS = {
    "block_masks": block_masks,
    "lengths_mask": lengths_mask,
    "masked_dense": masked_dense,
    "masked_norm": masked_norm,
    "masked_pool": masked_pool,
    "pack_mask": pack_mask,
    "pack_tokens": pack_tokens,
}
