"""masked_pool in the op suite: the largest and the mean value."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE, WINDOW, STRIDES, PADS = (3, 7, 6, 8), (3, 2), (2, 1), ((1, 0), (0, 1))
NO_CAPACITY = "it builds no list: every position has room"


def pooled(x, mask, window, strides, pads, kind):
    """(values, which windows have an active position), float64."""
    wide = ((0, 0), *pads)
    mask = np.pad(mask, wide)
    x = np.where(mask[..., None], np.pad(np.asarray(x, np.float64), (*wide, (0, 0))), np.nan)
    high, across = ((n - w) // s + 1 for n, w, s in zip(x.shape[1:3], window, strides, strict=True))
    y = np.zeros((x.shape[0], high, across, x.shape[3]))
    any_of = np.zeros(y.shape[:3], bool)
    for i in range(high):
        for j in range(across):
            rows = slice(i * strides[0], i * strides[0] + window[0])
            columns = slice(j * strides[1], j * strides[1] + window[1])
            inside, at = mask[:, rows, columns], x[:, rows, columns]
            any_of[:, i, j] = inside.any((1, 2))
            for b in np.flatnonzero(any_of[:, i, j]):
                values = at[b][inside[b]]
                y[b, i, j] = values.max(0) if kind == "max" else values.mean(0)
    return y, any_of


OUT = pooled(np.zeros(SHAPE), np.zeros(SHAPE[:3], bool), WINDOW, STRIDES, PADS, "max")[0].shape


def draw(rng, fill):
    values = rng.permutation(np.prod(SHAPE)).reshape(SHAPE) / 64 - 8  # no two are equal
    return {
        "x": values.astype(np.float32),
        "base": rng.standard_normal(OUT, np.float32),
        "mask": rng.random(SHAPE[:3]) < fill,
    }


def spec_of(kind, **changes):
    def apply(operands, implementation):
        x, mask, base = (operands[k] for k in ("x", "mask", "base"))
        options = {"strides": STRIDES, "padding": PADS, "kind": kind, "base": base}
        return js.masked_pool(x, mask, WINDOW, **options, implementation=implementation)

    def want(operands):
        y, any_of = pooled(operands["x"], operands["mask"], WINDOW, STRIDES, PADS, kind)
        return np.where(any_of[..., None], y, operands["base"])

    return OpSpec(
        name=f"masked_pool {kind}",
        serves=(js.masked_pool,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "base"),
        sharded=frozenset({"x", "base", "mask"}),
        split=Split({"x": 0, "base": 0, "mask": 0}),
        empty=lambda rng: {k: v[:0] for k, v in draw(rng, 0.5).items()},
        unread=lambda operands: {
            "x": np.broadcast_to(~operands["mask"][..., None], operands["x"].shape)
        },
        **changes,
    )


X, MASK = np.ones((2, 5, 6, 4), np.float32), np.ones((2, 5, 6), bool)


def call(**changed):
    return js.masked_pool(**{"x": X, "mask": MASK, "window_shape": 2, **changed})


BAD = {
    "x rank": ({"x": X[0]}, ValueError, r"x has shape \(5, 6, 4\); it needs 4 axes, NHWC"),
    "x int": ({"x": X.astype(int)}, TypeError, r"x has dtype int32; .* x\.astype"),
    "mask shape": ({"mask": MASK[:, :4]}, ValueError, r"mask has shape .*; x's positions are"),
    "mask dtype": ({"mask": MASK * 1}, TypeError, "mask has dtype int64; .* `mask != 0`"),
    "window": ({"window_shape": 0}, ValueError, "window_shape=0: each must be at least 1"),
    "strides": ({"strides": "2"}, TypeError, "strides takes an int or two ints, not '2'"),
    "padding": ({"padding": "FULL"}, ValueError, "padding='FULL'"),
    "kind": ({"kind": "min"}, ValueError, "kind='min' is not one of 'max', 'avg'"),
    "base": ({"base": X}, ValueError, r"base is float32\[2, 5, 6, 4\]; the result is float32"),
}


class TestMax(OpSuite):
    spec = spec_of(
        "max",
        call=call,
        bad=BAD,
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": NO_CAPACITY,
            "gradient": "finite differences cross the places where another position is the largest",
            "second_derivative": "it is linear between places where another position is largest",
            "gradient_of_16_bits": "values of 16 bits are equal, and then one of them is taken",
        },
    )

    def test_gradient_goes_to_the_largest(self, implementation, rng):
        operands = draw(rng, 0.5)
        x, mask = operands["x"], operands["mask"]
        got = jax.grad(lambda x: js.masked_pool(x, mask, 2, implementation=implementation).sum())(x)
        y, any_of = pooled(x, mask, (2, 2), (1, 1), ((0, 0), (0, 0)), "max")
        want = np.zeros(SHAPE)
        for b, i, j, c in np.argwhere(np.broadcast_to(any_of[..., None], y.shape)):
            block = np.where(mask[b, i : i + 2, j : j + 2], x[b, i : i + 2, j : j + 2, c], -np.inf)
            row, column = np.unravel_index(block.argmax(), (2, 2))
            want[b, i + row, j + column, c] += 1
        np.testing.assert_array_equal(got, want)

    @settings(max_examples=15, deadline=None)
    @given(
        window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        padding=st.sampled_from(["SAME", "VALID", 1]),
        kind=st.sampled_from(["max", "avg"]),
        seed=st.integers(0, 99),
    )
    def test_windows(self, window, strides, padding, kind, seed):
        operands = draw(np.random.default_rng(seed), 0.3)
        x, mask = operands["x"], operands["mask"]
        got = js.masked_pool(x, mask, window, strides=strides, padding=padding, kind=kind)
        found = js.mask.pool(mask, window, strides, padding)
        pads = {"VALID": ((0, 0), (0, 0)), 1: ((1, 1), (1, 1))}.get(padding)
        if pads is None:
            pads = []
            for n, w, s in zip(SHAPE[1:3], window, strides, strict=True):
                total = max((-(-n // s) - 1) * s + w - n, 0)
                pads.append((total // 2, total - total // 2))
        want, any_of = pooled(x, mask, window, strides, tuple(pads), kind)
        np.testing.assert_array_equal(found, any_of)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    def test_an_index_and_a_mask_of_one_image(self, rng):
        operands = draw(rng, 0.5)
        x, mask = operands["x"], operands["mask"]
        want = js.masked_pool(x, np.broadcast_to(mask[:1], mask.shape), 2)
        for form in (mask[:1], js.tile_index(jnp.asarray(mask[:1]), (2, 2))):
            np.testing.assert_array_equal(js.masked_pool(x, form, 2), want)


class TestAvg(OpSuite):
    spec = spec_of(
        "avg",
        call=lambda **changed: call(**{"kind": "avg", **changed}),
        inapplicable={"overflow_is_flagged_and_written_nowhere": NO_CAPACITY},
    )
