"""pack_tokens and unpack_tokens in the op suite: the rows of both, in order."""

import numpy as np
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

B, T, D, ROOM = 2, 9, 4, 18
TOGETHER = "the tokens of all sequences lie side by side"


def draw(rng, fill):
    return {
        "x": rng.standard_normal((B, T, D), np.float32),
        "mask": rng.random((B, T)) < fill,
        "base": rng.standard_normal((B, T, D), np.float32),
    }


def apply(operands, implementation, capacity=ROOM):
    x, mask, base = (operands[name] for name in ("x", "mask", "base"))
    rows, packing = js.pack_tokens(x, mask, capacity=capacity, implementation=implementation)
    back = js.unpack_tokens(2 * rows, packing, base=base, implementation=implementation)
    return rows, back, packing.count, packing.overflow, packing.cu_seqlens


def want(operands, capacity=ROOM):
    x, mask, base = operands["x"], operands["mask"], operands["base"]
    batch, length, depth = x.shape
    rows, back = np.zeros((capacity, depth)), np.array(base, np.float64)
    starts, count = [0], 0
    for b in range(batch):
        for t in np.flatnonzero(mask[b]):
            if count < capacity:
                rows[count] = x[b, t]
                back[b, t] = 2 * np.asarray(x[b, t], np.float64)
                count += 1
        starts.append(count)
    assert length == mask.shape[1]
    return rows, back, np.int32(count), np.bool_(mask.sum() > capacity), np.int32(starts)


def unread(operands):
    """Tokens that are not packed; what stands in place of those that are."""
    left = np.broadcast_to(~operands["mask"][..., None], (B, T, D))
    return {"x": left, "base": ~left}


X, MASK = np.ones((2, 5, 3), np.float32), np.ones((2, 5), bool)


def call(**changed):
    return js.pack_tokens(**{"x": X, "mask": MASK, **changed})


BAD = {
    "x list": ({"x": [1.0]}, TypeError, "x must be an array, not list"),
    "x rank": ({"x": X[0, 0]}, ValueError, r"x has shape \(3,\); it needs at least 2 axes"),
    "mask dtype": ({"mask": MASK * 1}, TypeError, "mask has dtype int64; it takes a bool mask or"),
    "mask rank": ({"mask": MASK[0]}, ValueError, r"mask has shape \(5,\); .* mask\[None\] holds"),
    "mask shape": ({"mask": MASK[:, :4]}, ValueError, r"mask has shape .*; x's tokens are \(2, 5"),
    "capacity": ({"capacity": -1}, ValueError, "capacity=-1; it takes 0 to"),
}


class TestPackTokens(OpSuite):
    spec = OpSpec(
        name="pack_tokens",
        serves=(js.pack_tokens, js.unpack_tokens),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "base"),
        sharded=frozenset({"x", "mask", "base"}),
        empty=lambda rng: {name: value[:, :0] for name, value in draw(rng, 0.5).items()},
        unread=unread,
        call=call,
        bad=BAD,
        inapplicable={
            "split_by_a_mesh": TOGETHER,
            "overflow_is_flagged_and_written_nowhere": "a capacity is in test_pack_tokens.py",
        },
    )
