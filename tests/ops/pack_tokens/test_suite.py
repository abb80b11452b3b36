"""pack_tokens and unpack_tokens in the op suite: there and back, with room for some tokens."""

import jax
import numpy as np
import pytest
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

BATCH, LENGTH, WIDTH, ROOM = 3, 7, 4, 15


@pytest.fixture(scope="module")
def implementation():
    """This machine's: XLA moves the rows; the list is that of tile_index, whose suite runs all."""
    return {"gpu": "cuda"}.get(jax.default_backend(), "cpu")


def draw(rng, fill):
    x, base = (rng.standard_normal((BATCH, LENGTH, WIDTH), np.float32) for _ in range(2))
    return {"x": x, "base": base, "mask": rng.random((BATCH, LENGTH)) < fill}


def kept(mask):
    """The tokens that there is room for, bool[B, T]."""
    return mask & (mask.cumsum().reshape(mask.shape) <= ROOM)


def apply(operands, implementation):
    with js.config(implementation=implementation):
        packed, packing = js.pack_tokens(operands["x"], operands["mask"], capacity=ROOM)
        back = js.unpack_tokens(packed, packing, base=operands["base"])
    return packed, back, packing.count, packing.overflow, packing.cu_seqlens


def want(operands):
    x, base, mask = operands["x"], operands["base"], operands["mask"]
    there = kept(mask)
    packed = np.zeros((ROOM, WIDTH))
    packed[: there.sum()] = x[there]
    ends = np.concatenate([[0], there.sum(1).cumsum()])
    over = np.bool_(mask.sum() > ROOM)
    back = np.where(there[..., None], x, base)
    return packed, back, there.sum(dtype=np.int32), over, ends.astype(np.int32)


def overflow(rng):
    operands = draw(rng, 1.0)
    return operands, want(operands), f"pack_tokens: 21 tokens count, and capacity={ROOM}"


def unread(operands):
    there = np.broadcast_to(kept(operands["mask"])[..., None], operands["x"].shape)
    return {"x": ~there, "base": there}


X = np.ones((BATCH, LENGTH, WIDTH), np.float32)
MASK = np.eye(BATCH, LENGTH, dtype=bool)
PACKING = js.pack_tokens(X, MASK)[1]


def call(implementation=None, **changed):
    with js.config(implementation=implementation):
        return js.pack_tokens(**{"x": X, "mask": MASK, **changed})


class TestPackTokens(OpSuite):
    spec = OpSpec(
        name="pack_tokens",
        serves=(js.pack_tokens, js.unpack_tokens),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "base"),
        sharded=frozenset({"x", "base", "mask"}),
        empty=lambda rng: {name: v[:0] for name, v in draw(rng, 0.5).items()},
        unread=unread,
        overflow=overflow,
        call=call,
        bad={
            "x rank": ({"x": X[0, 0]}, ValueError, "x has shape"),
            "mask dtype": ({"mask": MASK * 1}, TypeError, "mask has dtype int64"),
            "mask shape": ({"mask": MASK[:, :2]}, ValueError, "mask has shape .*x's tokens are"),
            "mask of lengths": ({"mask": np.arange(3)}, TypeError, "js.lengths_mask.mask, 7"),
            "capacity": ({"capacity": -1}, ValueError, "capacity=-1; it takes 0"),
            "packing": ({"x": X[:2], "mask": PACKING}, ValueError, "mask is a TokenPacking of"),
            "another capacity": (
                {"mask": PACKING, "capacity": 3},
                ValueError,
                "capacity=3; the packing has 21",
            ),
        },
        inapplicable={"split_by_a_mesh": "the tokens of all sequences lie side by side"},
    )
