"""bounded.network in the op suite: a packed stack whose weights and biases are operands."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

BATCH, WIDTHS, UPPER = 6, (20, 24, 18, 10), 1.5


@functools.cache
def patterns():
    """Which weights there are in each layer."""
    rng = np.random.default_rng(7)
    return [rng.random((n, m)) < 0.3 for m, n in itertools.pairwise(WIDTHS)]


WEIGHTS, OUTPUTS = sum(int(p.sum()) for p in patterns()), sum(WIDTHS[1:])


@functools.cache
def packed():
    """The network, and of each packed weight and bias: which one it is, and what part of it.

    Packing splits a value in halves to fill up a row: odd numbers tell which they were.
    """
    odd = 2 * np.arange(WEIGHTS) + 1
    offsets = np.cumsum([int(p.sum()) for p in patterns()])[:-1]
    starts = np.cumsum(WIDTHS[1:])[:-1]
    layers = []
    parts = zip(patterns(), np.split(odd, offsets), strict=True)
    for (pattern, numbers), bias in zip(
        parts, np.split(2 * np.arange(OUTPUTS) + 1, starts), strict=True
    ):
        weight = np.zeros(pattern.shape, np.float32)
        weight[pattern] = numbers
        layers.append(js.bounded.inspect(weight.T, bias.astype(np.float32), UPPER, fold=False))
    net = js.bounded.network(layers, fold=False)
    return jax.tree.map(np.asarray, net), source_of(net.weights), source_of(net.bias)


def source_of(values):
    """index, share: `values` is share * (2 * index + 1), or zero."""
    values = np.asarray(values, np.float64)
    whole = np.abs(values)
    while (fraction := (whole % 1 != 0)).any():
        whole = np.where(fraction, 2 * whole, whole)
    index = ((whole - 1) // 2).astype(np.int32)
    share = np.where(values == 0, 0, values / np.maximum(whole, 1))
    return np.maximum(index, 0), share.astype(np.float32)


def draw(rng, fill):
    """Images of which `fill` of the pixels are not zero."""
    x = rng.random((BATCH, WIDTHS[0]), np.float32)
    return {
        "x": np.where(rng.random(x.shape) < fill, x, 0).astype(np.float32),
        "weights": rng.standard_normal(WEIGHTS, np.float32) * np.float32(0.6),
        "bias": rng.standard_normal(OUTPUTS, np.float32) * np.float32(0.3),
        "net": packed()[0],
    }


def apply(operands, implementation):
    net = dataclasses.replace(operands["net"], implementation=implementation)
    values = [
        operands[name][index] * share
        for name, (index, share) in zip(("weights", "bias"), packed()[1:], strict=True)
    ]
    out = net.with_values(*values)(operands["x"])
    return out.materialize(), out.recorder.codes


def want(operands):
    y, at, bias_at = np.asarray(operands["x"], np.float64), 0, 0
    for pattern in patterns():
        weight = np.zeros(pattern.shape)
        weight[pattern] = operands["weights"][at : at + int(pattern.sum())]
        bias = operands["bias"][bias_at : bias_at + len(pattern)]
        at, bias_at = at + int(pattern.sum()), bias_at + len(pattern)
        y = np.clip(y @ weight.T + bias, 0, UPPER)
    zero, full = (y == 0).all(1, keepdims=True), (y == UPPER).all(1, keepdims=True)
    return y, np.where(zero, 1, np.where(full, 2, 0)).astype(np.uint8)


ACTS = np.zeros((2, 4), np.float32)
LAYER = js.bounded.inspect(np.eye(4), 0.0, 1.0)
NARROW = js.bounded.inspect(np.ones((4, 3)), 0.0, 1.0)
FLOAT32 = "it takes float32"


def call(acts=ACTS, **changed):
    return js.bounded.network(**{"layers": [LAYER, LAYER], **changed})(acts)


class TestBoundedNetwork(OpSuite):
    spec = OpSpec(
        name="bounded.network",
        serves=(js.bounded.network,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "weights", "bias"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}, (0, 0)),
        empty=lambda rng: {k: v[:0] if k == "x" else v for k, v in draw(rng, 0.5).items()},
        call=call,
        bad={
            "no layers": ({"layers": []}, ValueError, "layers? .*at least one"),
            "one layer": ({"layers": LAYER}, TypeError, "one Layer: write"),
            "an array": (
                {"layers": [np.eye(4)]},
                TypeError,
                r"layer 0 must be a js\.bounded\.Layer",
            ),
            "widths": (
                {"layers": [NARROW, LAYER]},
                ValueError,
                "layer 1 takes 4 inputs; layer 0 has 3 outputs",
            ),
            "fold": ({"fold": "no"}, TypeError, "fold must be a bool, not str"),
            "retire": ({"retire": "no"}, TypeError, "retire must be a bool, not str"),
            "acts width": ({"acts": ACTS[:, :3]}, ValueError, "acts has 3 columns; .* takes 4"),
            "acts dtype": ({"acts": ACTS.astype(int)}, TypeError, "acts has dtype int64; it takes"),
        },
        inapplicable={
            "16_bits": FLOAT32,
            "gradient_of_16_bits": FLOAT32,
            "nothing_is_read_that_does_not_count": "every pixel of an image counts",
            "overflow_is_flagged_and_written_nowhere": "its result has room for every value",
        },
    )
