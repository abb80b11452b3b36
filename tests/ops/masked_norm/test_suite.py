"""masked_norm in the op suite: its three kinds, and given statistics."""

import functools

import jax
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE, GROUPS = (3, 4, 5, 8), 2
NO_CAPACITY = "it builds no list: every position has room"


def draw(rng, fill):
    return {
        "x": 2 * rng.standard_normal(SHAPE, np.float32) + 1,
        "scale": rng.standard_normal(SHAPE[-1:], np.float32),
        "bias": rng.standard_normal(SHAPE[-1:], np.float32),
        "base": rng.standard_normal(SHAPE, np.float32),
        "mask": rng.random(SHAPE[:-1]) < fill,
    }


def moments(x, mask, kind):
    """Mean and variance, float64, to broadcast over x; zero where nothing counts."""
    parts = GROUPS if kind == "group" else 1
    split = x.reshape(*x.shape[:3], parts, x.shape[3] // parts).astype(np.float64)
    counted = np.broadcast_to(mask[..., None, None], split.shape)
    axes = {"batch": (0, 1, 2), "group": (1, 2, 4), "layer": (3, 4)}[kind]
    number = np.maximum(counted.sum(axes, keepdims=True), 1)
    mean = np.where(counted, split, 0).sum(axes, keepdims=True) / number
    var = np.where(counted, (split - mean) ** 2, 0).sum(axes, keepdims=True) / number
    return (np.broadcast_to(v, split.shape).reshape(x.shape) for v in (mean, var))


def oracle_of(kind):
    def want(operands):
        mean, var = moments(operands["x"], operands["mask"], kind)
        return written(operands, mean, var)

    return want


def written(operands, mean, var):
    mask = operands["mask"][..., None]
    x = np.where(mask, operands["x"], 0)
    y = (x - mean) / np.sqrt(var + 1e-2) * operands["scale"] + operands["bias"]
    return np.where(mask, y, operands["base"])


def apply_of(kind):
    def apply(operands, implementation):
        groups = GROUPS if kind == "group" else None
        options = {"kind": kind, "groups": groups, "epsilon": 1e-2}
        return js.masked_norm(**operands, **options, implementation=implementation)

    return apply


X, MASK = np.ones((2, 5, 8), np.float32), np.ones((2, 5), bool)


def call(**changed):
    return js.masked_norm(**{"x": X, "mask": MASK, **changed})


BAD = {
    "x rank": ({"x": X[0, 0]}, ValueError, r"x has shape \(8,\); it needs at least 2 axes"),
    "x int": ({"x": X.astype(int)}, TypeError, r"x has dtype int32; .* x\.astype"),
    "mask dtype": (
        {"mask": MASK.astype(np.int8)},
        TypeError,
        "mask has dtype int8; it takes a bool mask or a TileIndex: `mask != 0`",
    ),
    "mask shape": (
        {"mask": MASK[:, :4]},
        ValueError,
        r"mask has shape \(2, 4\); x's positions are \(2, 5\)",
    ),
    "kind": ({"kind": "instance"}, ValueError, "kind='instance' is not one of 'batch', 'group'"),
    "groups": ({"kind": "group", "groups": 3}, ValueError, "groups=3 does not divide x's 8"),
    "groups missing": ({"kind": "group"}, ValueError, "groups is None; kind='group' takes"),
    "groups given": ({"groups": 2}, ValueError, "groups=2 is for kind='group'"),
    "scale": ({"scale": X[0, 0, :4]}, ValueError, r"scale has shape \(4,\); .* need \(8,\)"),
    "bias list": ({"bias": [1.0]}, TypeError, "bias must be an array, not list"),
    "mean alone": ({"mean": X[0, 0]}, ValueError, "var is None: mean and var are given together"),
    "mean shape": (
        {"mean": X[0], "var": X[0]},
        ValueError,
        r"mean has shape \(5, 8\); the statistics of x have \(8,\)",
    ),
    "epsilon": ({"epsilon": 0}, ValueError, "epsilon=0; it takes a number > 0"),
    "base": ({"base": X[0]}, ValueError, r"base is float32\[5, 8\]; the result is float32"),
    "statistics": (
        {"return_statistics": "yes"},
        TypeError,
        "return_statistics must be a bool, not str",
    ),
}


def empty(rng):
    operands = draw(rng, 0.5)
    return {k: v if k in ("scale", "bias") else v[:0] for k, v in operands.items()}


def unread(operands):
    return {"x": np.broadcast_to(~operands["mask"][..., None], operands["x"].shape)}


def spec_of(kind, **changes):
    return OpSpec(
        name=f"masked_norm {kind}",
        serves=(js.masked_norm,),
        draw=draw,
        apply=apply_of(kind),
        oracle=oracle_of(kind),
        floats=("x", "scale", "bias", "base"),
        sharded=frozenset({"x", "base", "mask"}),
        split=Split({"x": 0, "base": 0, "mask": 0}),
        empty=empty,
        unread=unread,
        scale=4.0,
        inapplicable={"overflow_is_flagged_and_written_nowhere": NO_CAPACITY},
        **changes,
    )


class TestBatch(OpSuite):
    spec = spec_of("batch", call=call, bad=BAD)

    def test_given_statistics(self, implementation, rng):
        operands = draw(rng, 0.5)
        mean, var = rng.standard_normal(8), rng.random(8)
        given = jax.tree.map(np.float32, {"mean": mean, "var": var})
        got = js.masked_norm(**operands, **given, epsilon=1e-2, implementation=implementation)
        np.testing.assert_allclose(got, written(operands, mean, var), rtol=1e-4, atol=1e-4)

    def test_statistics_are_returned(self, implementation, rng):
        operands = draw(rng, 0.5)
        for kind, groups, pick in (
            ("batch", None, np.s_[0, 0, 0]),
            ("group", GROUPS, np.s_[:, 0, 0, ::4]),
            ("layer", None, np.s_[..., 0]),
        ):
            options = {"kind": kind, "groups": groups, "return_statistics": True}
            x, mask = operands["x"], operands["mask"]
            _, *found = js.masked_norm(x, mask, **options, implementation=implementation)
            for got, want in zip(found, moments(x, mask, kind), strict=True):
                np.testing.assert_allclose(got, want[pick], rtol=1e-5, atol=1e-5)

    def test_an_index_and_a_mask_of_one_image(self, implementation, rng):
        operands = draw(rng, 0.5)
        x, mask = operands["x"], operands["mask"]
        want = js.masked_norm(x, mask, implementation=implementation)
        got = js.masked_norm(x, js.tile_index(mask, (2, 2)), implementation=implementation)
        np.testing.assert_array_equal(got, want)
        want = js.masked_norm(x, np.broadcast_to(mask[:1], mask.shape))
        for given in (mask[:1], js.tile_index(mask[:1])):
            np.testing.assert_array_equal(js.masked_norm(x, given), want)


class TestGroup(OpSuite):
    spec = spec_of("group", call=functools.partial(call, kind="group", groups=2))


class TestLayer(OpSuite):
    spec = spec_of("layer", call=functools.partial(call, kind="layer"))
