"""masked_dense in the op suite."""

import jax
import jax.numpy as jnp
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

BATCH, TOKENS, DEPTH, OUTPUTS = 3, 10, 16, 24


def draw(rng, fill):
    return {
        "x": rng.standard_normal((BATCH, TOKENS, DEPTH), np.float32),
        "w": rng.standard_normal((DEPTH, OUTPUTS), np.float32) / np.float32(DEPTH**0.5),
        "bias": rng.standard_normal(OUTPUTS, np.float32),
        "base": rng.standard_normal((BATCH, TOKENS, OUTPUTS), np.float32),
        "mask": rng.random((BATCH, TOKENS)) < fill,
    }


def apply(operands, implementation):
    return js.masked_dense(**operands, activation="silu", implementation=implementation)


def want(operands, mask=None):
    mask = operands["mask"] if mask is None else mask
    x = np.where(mask[..., None], operands["x"], 0)
    y = x @ operands["w"] + operands["bias"]
    return np.where(mask[..., None], y / (1 + np.exp(-y)), operands["base"])


def overflow(rng):
    """An index of all the tokens, with room for three of them."""
    operands = draw(rng, 0.6)
    mask = operands["mask"]
    image = jnp.asarray(mask)[:, None]
    index = js.tile_index(image, (1, 1), capacity=3, ordered=True)
    listed = np.zeros(mask.size, bool)
    listed[np.flatnonzero(mask)[:3]] = True
    given = operands | {"mask": jax.tree.map(np.asarray, index)}
    return given, want(operands, listed.reshape(mask.shape)), "capacity of 3"


X, W = np.ones((2, 5, 8), np.float32), np.ones((8, 10), np.float32)
MASK = np.ones((2, 5), bool)


def call(**changed):
    return js.masked_dense(**{"x": X, "w": W, "mask": MASK, **changed})


BAD = {
    "x rank": ({"x": X[0, 0]}, ValueError, r"x has shape \(8,\); it needs at least 2 axes"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array, not list"),
    "x int": ({"x": X.astype(int)}, TypeError, "x has dtype int32; it takes float32, bfloat16 or"),
    "w rank": ({"w": W[0]}, ValueError, r"w has shape \(10,\); it needs 2 axes"),
    "w dtype": (
        {"w": W.astype(np.float16)},
        TypeError,
        r"w has dtype float16, x has float32: they must be equal: w\.astype\(x\.dtype\)",
    ),
    "w depth": ({"w": W[:4]}, ValueError, r"w has shape \(4, 10\); x .* needs \[8, n\]"),
    "mask dtype": (
        {"mask": MASK.astype(np.int8)},
        TypeError,
        "mask has dtype int8; it takes a bool mask or a TileIndex: `mask != 0` makes one",
    ),
    "mask shape": (
        {"mask": MASK[:, :1]},
        ValueError,
        r"mask has shape \(2, 1\); x's tokens have \(2, 5\)",
    ),
    "mask of lengths": (
        {"mask": np.array([3, 5])},
        TypeError,
        r"mask has dtype int64; .*js\.lengths_mask\(mask, 5\) makes one",
    ),
    "mask index": (
        {"mask": js.tile_index(MASK[None])},
        ValueError,
        r"mask is a TileIndex of .* need one of \(2, 1, 5\), which js.token_index makes",
    ),
    "mask stack": (
        {"mask": jax.vmap(js.token_index)(MASK[None])},
        ValueError,
        r"mask is a stack \(1,\) of TileIndex: take it apart with jax.vmap",
    ),
    "bias shape": (
        {"bias": np.ones(3, np.float32)},
        ValueError,
        r"bias has shape \(3,\); w's 10 outputs need \(10,\)",
    ),
    "bias list": ({"bias": [1.0] * 10}, TypeError, "bias must be an array, not list"),
    "bias float": ({"bias": 1.0}, TypeError, "bias must be an array, not float"),
    "base shape": ({"base": X}, ValueError, r"base is float32\[2, 5, 8\]; the result is float32"),
    "base rank": ({"base": X[0]}, ValueError, r"base has shape \(5, 8\); it needs 3 axes"),
    "base float": ({"base": 0.0}, TypeError, "base must be an array, not float"),
    "activation": (
        {"activation": "tanh"},
        ValueError,
        "activation='tanh' is not one of None",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "result word": (
        {"preferred_element_type": "foo"},
        TypeError,
        "preferred_element_type='foo'; it takes float32",
    ),
    "result dtype": (
        {"preferred_element_type": jnp.bfloat16},
        TypeError,
        r"(?m)preferred_element_type=bfloat16; it takes float32$",
    ),
}


class TestMaskedDense(OpSuite):
    spec = OpSpec(
        name="masked_dense",
        serves=(js.masked_dense,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "w", "bias", "base"),
        sharded=frozenset({"x", "base", "mask"}),
        split=Split({"x": 0, "base": 0, "mask": 0}),
        empty=lambda rng: {
            k: v if k in ("w", "bias") else v[:0] for k, v in draw(rng, 0.5).items()
        },
        unread=lambda operands: {
            "x": np.broadcast_to(~operands["mask"][..., None], operands["x"].shape)
        },
        overflow=overflow,
        call=call,
        bad=BAD,
    )
