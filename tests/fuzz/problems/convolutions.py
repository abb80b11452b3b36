"""Convolutions under a mask."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits

SMOOTH = (None, "silu", "gelu")
ONE = ((1, 1), ((0, 0), (0, 0)), (1, 1))


def indexed(draw: Draw, component: bool = True) -> Any:
    """mask -> what an op takes: the mask, an index of it, or one that went through other arrays."""
    tile = draw.pick(None, (1, 1), (2, 2), (1, 4), (4, 4), (8, 16))
    ordered, align = draw.chance(0.5), "component" if component and draw.chance(0.2) else "grid"
    form = draw.pick("mask", "mask", "index", "index", "slice")

    def of(mask: Any) -> Any:
        if form == "mask":
            return mask
        index = js.tile_index(mask, tile, ordered=ordered, align=align)
        if form == "index":
            return index
        stacked = jax.tree.map(lambda v: jnp.stack([jnp.zeros_like(v), v]), index)
        return jax.tree.map(lambda v: v[1], stacked)

    of.__doc__ = f"{form} of {tile} {align}{' ordered' * ordered}"
    return of


def masked_conv(draw: Draw) -> Problem:
    """With every option of the epilogue."""
    groups, dtype = draw.pick(1, 1, 1, 2, 3), draw.dtype()
    geometry = (draw.pair(3), draw.pads(), draw.pair(3))
    shape = (draw.lead(3), *draw.pair(20), groups * draw.size(20))
    window = (*draw.pair(5), shape[3] // groups, groups * draw.size(20))
    out = (shape[0], *oracle.windows(shape[1:3], window[:2], geometry), window[3])
    activation = draw.pick(None, None, "relu", "relu6", "silu", "gelu")
    floats = {"x": (shape, dtype), "kernel": (window, dtype)}
    optional = {"bias": (window[3:], dtype), "base": (out, dtype), "residual": (out, dtype)}
    floats |= {name: made for name, made in optional.items() if draw.chance(0.35)}
    of, wide = indexed(draw), draw.chance(0.2)
    options: dict[str, Any] = {"strides": geometry[0], "padding": geometry[1]}
    options |= {"dilation": geometry[2], "groups": groups, "activation": activation}
    options |= {"preferred_element_type": jnp.float32} if wide and "base" not in floats else {}
    if options.get("preferred_element_type"):
        floats.pop("residual", None)

    def sums(x: Any, kernel: Any, bias: Any = 0, residual: Any = 0) -> Any:
        return oracle.convolution(x, kernel, geometry, groups) + bias + residual

    def meaning(mask: Any, base: Any = 0, **arrays: Any) -> Any:
        return np.where(mask[..., None], oracle.activated(sums(**arrays), activation), base)

    def edges(mask: Any, base: Any = 0, **arrays: Any) -> Any:
        return oracle.edges(sums(**arrays)[mask], activation)

    def unread(operands: Arrays) -> Arrays:
        read = oracle.needed(operands["mask"], shape[1:3], window[:2], geometry)
        return {"x": np.broadcast_to(~read[..., None], shape)}

    names = {"x", "base", "residual"} & {*floats} | {"mask"}
    return Problem(
        f"{floats}, {options}, {of.__doc__}",
        lambda x, kernel, mask, **more: js.masked_conv(x, kernel, of(mask), **options, **more),
        meaning,
        floats,
        window[0] * window[1] * window[2],
        lambda rng: {"mask": bits(rng, out[:3])},
        # A 16-bit result that is rounded to 6 may come from below.
        smooth=activation != "relu6" or dtype == np.float32,
        edges=None if activation in SMOOTH else edges,
        split=dict.fromkeys(names, 0),
        unread=unread,
    )


def masked_conv_channels(draw: Draw) -> Problem:
    """With masks of channels."""
    dtype, which = draw.dtype(), draw.pick("in_channels", "out_channels", "both")
    geometry = (draw.pair(2), draw.pads(), draw.pair(2))
    shape = (draw.lead(3), *draw.pair(9), draw.size(90))
    window = (*draw.pair(3), shape[3], draw.size(90))
    out = (shape[0], *oracle.windows(shape[1:3], window[:2], geometry), window[3])
    activation = draw.pick(None, "silu", "relu")
    floats = {"x": (shape, dtype), "kernel": (window, dtype)}
    if draw.chance(0.4):
        floats["base"] = (out, dtype)
    options = {"strides": geometry[0], "padding": geometry[1], "dilation": geometry[2]}

    def data(rng: np.random.Generator) -> Arrays:
        found = {"mask": bits(rng, out[:3])}
        if which != "out_channels":
            found["in_channels"] = bits(rng, shape[3:])
        return found | ({"out_channels": bits(rng, out[3:])} if which != "in_channels" else {})

    def meaning(x: Any, kernel: Any, mask: Any, base: Any = 0, **channels: Any):
        x = x * channels.get("in_channels", True)
        y = oracle.activated(oracle.convolution(x, kernel, geometry, 1), activation)
        return np.where(mask[..., None] & channels.get("out_channels", True), y, base)

    return Problem(
        f"{floats}, {options}, {activation}, {which}",
        lambda **arrays: js.masked_conv(**arrays, activation=activation, **options),
        meaning,
        floats,
        window[0] * window[1] * window[2],
        data,
        smooth=activation in SMOOTH,
        split=dict.fromkeys({"x", "base"} & {*floats} | {"mask"}, 0),
    )


def masked_conv_stack(draw: Draw) -> Problem:
    """Of one to three layers, "SAME"."""
    dtype, channels, layers = draw.dtype(), draw.size(20), draw.size(3)
    shape, outputs = (draw.lead(2), *draw.pair(12)), [channels] * (layers - 1) + [draw.size(20)]
    windows = [(*draw.pair(3), channels, n) for n in outputs]
    activations = [draw.pick(None, "silu", "gelu") for _ in range(layers)]
    residuals = [
        draw.pick(None, *range(-1, i)) if n == channels else None for i, n in enumerate(outputs)
    ]
    tile = draw.pick(None, (8, 8), (4, 4))
    floats: dict[str, Any] = {"x": ((*shape, channels), dtype)}
    for i, window in enumerate(windows):
        floats |= {f"k{i}": (window, dtype), f"base{i}": ((*shape, window[3]), dtype)}

    def call(x: Any, mask: Any, **arrays: Any) -> Any:
        kernels, bases = ([arrays[f"{n}{i}"] for i in range(layers)] for n in ("k", "base"))
        index = js.tile_index(mask, tile) if tile else mask
        options = {"activations": activations, "residuals": residuals}
        return js.masked_conv_stack(x, kernels, index, bases, **options)

    def meaning(x: Any, mask: Any, **arrays: Any) -> Any:
        found = [x]
        for i, (window, name, at) in enumerate(zip(windows, activations, residuals, strict=True)):
            pads = tuple(((n - 1) // 2, n - 1 - (n - 1) // 2) for n in window[:2])
            y = oracle.convolution(found[-1], arrays[f"k{i}"], ((1, 1), pads, (1, 1)), 1)
            y = oracle.activated(y + (0 if at is None else found[at + 1]), name)
            y = np.where(mask[..., None], y, arrays[f"base{i}"])
            # A layer reads the rounded result of the one before.
            found.append(y)
        return tuple(found[1:])

    depth = channels * max(w[0] * w[1] for w in windows)
    return Problem(
        f"{floats}, {activations}, {residuals}, tile {tile}",
        call,
        meaning,
        floats,
        depth,
        lambda rng: {"mask": bits(rng, shape)},
        split=dict.fromkeys(["x", "mask", *(n for n in floats if n.startswith("base"))], 0),
        loose=4.0 * layers,
    )


def masked_conv_recorded(draw: Draw) -> Problem:
    """Two layers; the second reads the recorder of the first."""
    dtype, shape = draw.dtype(), (draw.lead(2), *draw.pair(10), draw.size(10))
    middle, outputs = draw.size(20), draw.size(10)
    windows = ((*draw.pair(3), shape[3], middle), (*draw.pair(3), middle, outputs))
    floats = {"x": (shape, dtype), "first": (windows[0], dtype), "second": (windows[1], dtype)}
    record = draw.pick(True, draw.size(middle))

    def call(x: Any, first: Any, second: Any, mask: Any, after: Any) -> Any:
        y, recorder = js.masked_conv(x, first * 8, mask, activation="relu6", record=record)
        return y, js.masked_conv(y, second, after, recorder=recorder)

    same: Any = [
        ((1, 1), tuple(((n - 1) // 2, n - 1 - (n - 1) // 2) for n in w[:2]), (1, 1))
        for w in windows
    ]

    def edges(x: Any, first: Any, second: Any, mask: Any, after: Any) -> Any:
        return oracle.edges(oracle.convolution(x, first * 8, same[0], 1)[mask], "relu6")

    def meaning(x: Any, first: Any, second: Any, mask: Any, after: Any) -> Any:
        y = oracle.activated(oracle.convolution(x, first * 8, same[0], 1), "relu6")
        y = np.where(mask[..., None], y, 0)
        z = oracle.convolution(y, second, same[1], 1)
        return y, np.where(after[..., None], z, 0)

    return Problem(
        f"{floats}, record {record}",
        call,
        meaning,
        floats,
        windows[0][0] * windows[0][1] * shape[3] + windows[1][0] * windows[1][1] * middle,
        lambda rng: {"mask": bits(rng, shape[:3]), "after": bits(rng, shape[:3])},
        smooth=dtype == np.float32,
        edges=edges,
        split=dict.fromkeys(["x", "mask", "after"], 0),
        loose=8.0,
    )


OPS = {
    "masked_conv": masked_conv,
    "masked_conv_channels": masked_conv_channels,
    "masked_conv_recorded": masked_conv_recorded,
    "masked_conv_stack": masked_conv_stack,
}
