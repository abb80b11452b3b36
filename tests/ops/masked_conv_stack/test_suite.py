"""masked_conv_stack in the op suite: two layers, of which the second adds x."""

import jax
import jax.numpy as jnp
import numpy as np
from ops.masked_conv.oracle import masked_conv as oracle
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE, CHANNELS = (1, 9, 18), 32  # what one launch on a GPU takes in 16 bits
# Smooth ones, whose derivatives differences can tell.
ACTIVATIONS, RESIDUALS = ("gelu", "silu"), (None, -1)


def draw(rng, fill):
    kernel = (3, 3, CHANNELS, CHANNELS)
    scale = np.float32((9 * CHANNELS) ** -0.5)
    return {
        "x": rng.standard_normal((*SHAPE, CHANNELS), np.float32),
        "kernels": tuple(rng.standard_normal(kernel, np.float32) * scale for _ in range(2)),
        "bases": tuple(rng.standard_normal((*SHAPE, CHANNELS), np.float32) for _ in range(2)),
        "biases": tuple(rng.standard_normal(CHANNELS, np.float32) for _ in range(2)),
        "mask": rng.random(SHAPE) < fill,
    }


def apply(operands, implementation):
    options = {"activations": ACTIVATIONS, "residuals": RESIDUALS}
    return js.masked_conv_stack(**operands, **options, implementation=implementation)


def want(operands, mask=None):
    mask = operands["mask"] if mask is None else mask
    y, outs = operands["x"], []
    parts = (operands[k] for k in ("kernels", "biases", "bases"))
    for kernel, bias, base, name, at in zip(*parts, ACTIVATIONS, RESIDUALS, strict=True):
        residual = None if at is None else operands["x"]
        y = oracle(y, kernel, mask, bias=bias, activation=name, base=base, residual=residual)
        outs.append(y)
    return tuple(outs)


def unread(operands):
    """Pixels of x that no active pixel's window holds."""
    padded = np.pad(operands["mask"], ((0, 0), (1, 1), (1, 1)))
    height, width = SHAPE[1:]
    read = np.any([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], 0)
    return {"x": np.broadcast_to(~read[..., None], operands["x"].shape)}


def overflow(rng):
    operands = draw(rng, 0.6)
    index = js.tile_index(jnp.asarray(operands["mask"]), (8, 8), capacity=2, ordered=True)
    assert bool(index.overflow)
    listed = operands["mask"].copy()
    listed[:, :, 16:], listed[:, 8:] = False, False  # tiles of 8x8, of which two are listed
    given = operands | {"mask": jax.tree.map(np.asarray, index)}
    return given, want(operands, listed), "capacity of 2"


def empty(rng):
    operands = draw(rng, 0.5)
    first = {k: operands[k][:0] for k in ("x", "mask")}
    return operands | first | {"bases": tuple(b[:0] for b in operands["bases"])}


X = np.zeros((1, 4, 4, 8), np.float32)
KERNEL = np.zeros((3, 3, 8, 8), np.float32)
MASK = np.zeros((1, 4, 4), bool)


def call(**changed):
    good = {"x": X, "kernels": [KERNEL] * 2, "mask": MASK, "bases": [X] * 2}
    return js.masked_conv_stack(**{**good, **changed})


BAD = {
    "x rank": ({"x": X[0]}, ValueError, r"x has shape \(4, 4, 8\); it needs 4 axes"),
    "x int": ({"x": X.astype(int)}, TypeError, "x has dtype int32; it takes float32, bfloat16 or"),
    "bases": ({"bases": []}, ValueError, "bases has 0 entries; kernels has 2"),
    "biases": ({"biases": [None]}, ValueError, "biases has 1 entries; kernels has 2"),
    "activations": (
        {"activations": [None]},
        ValueError,
        "activations has 1 entries; kernels has 2",
    ),
    "residuals": (
        {"residuals": [0, None]},
        ValueError,
        r"residuals\[0\]=0; it takes -1 \(x\) to -1",
    ),
    "residual of other outputs": (
        {
            "residuals": [None, -1],
            "kernels": [KERNEL, KERNEL[..., :5]],
            "bases": [X, X[..., :5]],
        },
        ValueError,
        r"residuals\[1\]=-1: that layer has other outputs than x",
    ),
    "activation": (
        {"activations": ["tanh", None]},
        ValueError,
        "activation='tanh' is not one of None",
    ),
    "kernel": (
        {"kernels": [KERNEL[..., :4]] * 2},
        ValueError,
        r"kernels\[0\] is .*; x needs float32",
    ),
    "kernel rank": ({"kernels": [KERNEL[0]] * 2}, ValueError, r"kernels\[0\] .*; it needs 4 axes"),
    "base": ({"bases": [X[..., :4]] * 2}, ValueError, r"bases\[0\] is .*; x needs float32"),
    "base dtype": (
        {"bases": [X.astype(np.float16)] * 2},
        ValueError,
        r"bases\[0\] is float16.*; x needs float32",
    ),
    "mask shape": (
        {"mask": np.zeros((1, 4, 5), bool)},
        ValueError,
        r"mask has shape \(1, 4, 5\); x's pixels are \(1, 4, 4\)",
    ),
}


class TestMaskedConvStack(OpSuite):
    spec = OpSpec(
        name="masked_conv_stack",
        serves=(js.masked_conv_stack,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "kernels", "bases", "biases"),
        sharded=frozenset({"x", "bases", "mask"}),
        split=Split({"x": 0, "bases": 0, "mask": 0}, (0, 0)),
        empty=empty,
        unread=unread,
        overflow=overflow,
        call=call,
        bad=BAD,
        scale=2.0,  # two layers, each rounded to the dtype
    )
