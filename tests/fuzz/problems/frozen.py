"""Weights that are known beforehand: pruned ones, and saturated layers."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Draw, Problem

SMOOTH = (None, "silu", "gelu")


def kept(draw: Draw, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A pruned weight: single entries, or whole blocks of columns."""
    keep = draw.rng.random(shape) < draw.pick(0.0, 0.05, 0.3, 1.0)
    if draw.chance(0.3):
        keep = keep[..., :1].repeat(shape[-1], -1)
    values = draw.rng.standard_normal(shape) / 2
    return np.where(keep, values, 0).astype(np.float32).astype(dtype)


def epilogue(draw: Draw, outputs: int, dtype: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The floats and the options that a product ends with."""
    bias = {"bias": ((outputs,), dtype)} if draw.chance(0.4) else {}
    return bias, {"activation": draw.pick(None, None, "relu", "silu", "gelu")}


def pruned_matmul(draw: Draw) -> Problem:
    dtype, depth, outputs = draw.dtype(), draw.size(90), draw.size(90)
    lead = (draw.lead(40), *(draw.size(3) for _ in range(int(draw.rng.integers(2)))))
    w = kept(draw, (depth, outputs), dtype)
    pruned = js.pruned.inspect(w)
    bias, options = epilogue(draw, outputs, dtype)
    exact = w.astype(np.float64)
    return Problem(
        f"{lead} by {pruned}, {bias}, {options}",
        lambda x, bias=None: js.pruned_matmul(x, pruned, bias=bias, **options),
        lambda x, bias=0: oracle.activated(x @ exact + bias, options["activation"]),
        {"x": ((*lead, depth), dtype), **bias},
        depth,
        edges=None if options["activation"] in SMOOTH else lambda x, bias=0: [x @ exact + bias],
        split={"x": 0},
    )


def pruned_conv(draw: Draw) -> Problem:
    dtype, groups = draw.dtype(), draw.pick(1, 1, 2)
    geometry = (draw.pair(3), draw.pads(), draw.pair(3))
    shape = (draw.lead(3), 4 + draw.size(14), 4 + draw.size(14), groups * draw.size(12))
    w = kept(draw, (*draw.pair(3), shape[3] // groups, groups * draw.size(12)), dtype)
    pruned = js.pruned.inspect(w, kind="conv", groups=groups)
    bias, options = epilogue(draw, w.shape[3], dtype)
    options |= {"strides": geometry[0], "padding": geometry[1], "dilation": geometry[2]}
    flipped, exact = draw.chance(0.2), w.astype(np.float64)
    options |= {"layout": "NCHW" if flipped else "NHWC"}

    def meaning(x: Any, bias: Any = 0) -> Any:
        x = np.moveaxis(x, 1, 3) if flipped else x
        y = oracle.convolution(x, exact, geometry, groups) + bias
        y = oracle.activated(y, options["activation"])
        return np.moveaxis(y, 3, 1) if flipped else y

    given = (shape[0], shape[3], *shape[1:3]) if flipped else shape
    return Problem(
        f"{given} by {pruned}, {bias}, {options}",
        lambda x, bias=None: js.pruned_conv(x, pruned, bias=bias, **options),
        meaning,
        {"x": (given, dtype), **bias},
        w.shape[0] * w.shape[1] * w.shape[2],
        smooth=options["activation"] in SMOOTH,
        split={"x": 0},
    )


def stack(draw: Draw, widths: list[int], upper: float, fold: bool) -> tuple[Any, Any, Any]:
    """Layers, their meaning, and its edges."""
    given, repeat = [], draw.pick(1, 1, 3, 16)
    for n_in, n_out in itertools.pairwise(widths):
        w = kept(draw, (n_in, -(-n_out // repeat)), np.float32).repeat(repeat, 1)[:, :n_out]
        w = np.abs(w) if draw.chance(0.5) else w
        bias = draw.rng.standard_normal(n_out) * draw.pick(0.0, 0.3, 3.0)
        given.append((w * np.float32(2 / n_in**0.5), bias.astype(np.float32)))
    layers = [js.bounded.inspect(w, bias, upper, fold=fold) for w, bias in given]

    def sums(x: Any) -> Any:
        for w, bias in given:
            x = x @ w.astype(np.float64) + bias
            yield x
            x = np.clip(x, 0, upper)

    def meaning(x: Any) -> Any:
        return np.clip(list(sums(x))[-1], 0, upper)

    def edges(x: Any) -> Any:
        return [v for y in sums(x) for v in (y, y - upper)]

    return layers, meaning, edges


def bounded_matmul(draw: Draw) -> Problem:
    """One layer, or two of which the second reads the recorder of the first."""
    widths = [draw.size(70) for _ in range(draw.pick(2, 3))]
    upper, segment = draw.pick(0.5, 2.0, 32.0), draw.pick(None, draw.size(80))
    layers, meaning, edges = stack(draw, widths, upper, draw.chance(0.8))
    options = {"record": draw.chance(0.8), "segment": segment}
    flow = draw.pick(None, "row", "slab", "column", "converged")

    def call(x: Any) -> Any:
        acts = x
        for layer in layers:
            acts = js.bounded_matmul(acts, layer, **options, dataflow=flow)
        return acts.materialize()

    floats = {"x": ((draw.lead(20), widths[0]), jnp.dtype("float32"))}
    text = f"{widths}, {upper}, {options}, {flow}"
    depth = max(widths)
    split = {} if flow == "converged" else {"x": 0}  # it compares the images of all devices
    return Problem(text, call, meaning, floats, depth, edges=edges, split=split, loose=4.0)


def bounded_network(draw: Draw) -> Problem:
    """Several layers in one call."""
    widths, upper = [draw.size(70) for _ in range(draw.pick(2, 3, 4, 6))], draw.pick(0.5, 2.0, 32.0)
    fold, retire = draw.chance(0.7), draw.chance(0.8)
    layers, meaning, edges = stack(draw, widths, upper, fold)
    net = js.bounded.network(layers, fold=fold, retire=retire)
    floats = {"x": ((draw.lead(20), widths[0]), jnp.dtype("float32"))}
    text = f"{widths}, {upper}, fold {fold}, retire {retire}"

    def call(x: Any) -> Any:
        return net(x).materialize()

    depth = max(widths)
    return Problem(text, call, meaning, floats, depth, edges=edges, split={"x": 0}, loose=16.0)


OPS = {
    "bounded_matmul": bounded_matmul,
    "bounded_network": bounded_network,
    "pruned_conv": pruned_conv,
    "pruned_matmul": pruned_matmul,
}
