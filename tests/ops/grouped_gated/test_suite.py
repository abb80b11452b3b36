"""grouped_gated, the first half of a mixture's experts, in the op suite."""

import numpy as np
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

from jaxsparse.ops.grouped_gated.api import grouped_gated

ROWS, TOKENS, DEPTH, OUTPUTS, GROUPS = 30, 12, 16, 24, 4


def draw(rng, fill):
    """Groups that own the first `fill` of the rows; one of them is empty."""
    weight = (GROUPS, DEPTH, OUTPUTS)
    share = np.asarray([1, 0, 2, 1]) / 4
    return {
        "lhs": rng.standard_normal((TOKENS, DEPTH), np.float32),
        "gate": rng.standard_normal(weight, np.float32) / np.float32(DEPTH**0.5),
        "up": rng.standard_normal(weight, np.float32) / np.float32(DEPTH**0.5),
        "group_sizes": rng.multinomial(round(fill * ROWS), share).astype(np.int32),
        "gather": rng.integers(0, TOKENS, ROWS).astype(np.int32),
    }


def apply(operands, implementation):
    return grouped_gated(**operands, implementation=implementation)


def want(operands):
    lhs, sizes, gather = (operands[k] for k in ("lhs", "group_sizes", "gather"))
    gate, up = (oracle(lhs, operands[k], sizes, gather=gather) for k in ("gate", "up"))
    return gate / (1 + np.exp(-gate)) * up


def unread(operands):
    """Rows of lhs that no owned row gathers, and the weights of the empty group."""
    sizes = operands["group_sizes"]
    read = np.isin(np.arange(TOKENS), operands["gather"][: sizes.sum()])
    idle = np.broadcast_to((sizes == 0)[:, None, None], operands["up"].shape)
    rows = np.broadcast_to(~read[:, None], operands["lhs"].shape)
    return {"lhs": rows, "gate": idle, "up": idle}


def overflow(rng):
    """Groups that reach past the last row are cut off there."""
    operands = draw(rng, 1.0) | {"group_sizes": np.asarray([9, 9, 9, 9], np.int32)}
    return operands, want(operands), "group_sizes sum to 36"


LHS, WEIGHT = np.ones((6, 4), np.float32), np.ones((3, 4, 5), np.float32)
SIZES = np.asarray([2, 1, 3], np.int32)


def call(**changed):
    good = {"lhs": LHS, "gate": WEIGHT, "up": WEIGHT, "group_sizes": SIZES}
    return grouped_gated(**{**good, **changed})


# The product that refuses names its own operand: rhs is gate, or up.
BAD = {
    "lhs rank": ({"lhs": LHS[0]}, ValueError, r"lhs has shape \(4,\); it needs 2 axes"),
    "lhs int": ({"lhs": LHS.astype(int)}, TypeError, "lhs has dtype int32; it takes float32"),
    "lhs depth": ({"lhs": LHS[:, :3]}, ValueError, r"lhs \(6, 3\) needs \[g, 3, n\]"),
    "sizes count": ({"group_sizes": SIZES[:2]}, ValueError, "group_sizes has 2 entries; rhs has 3"),
    "sizes dtype": (
        {"group_sizes": SIZES.astype(np.float32)},
        TypeError,
        "group_sizes has dtype float32; it takes integers",
    ),
    "gather rank": (
        {"gather": np.zeros((1, 6), np.int32)},
        ValueError,
        r"gather has shape \(1, 6\); it needs 1 axis",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
}


class TestGroupedGated(OpSuite):
    spec = OpSpec(
        name="grouped_gated",
        serves=(grouped_gated,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("lhs", "gate", "up"),
        sharded=frozenset({"lhs", "group_sizes", "gather"}),
        split=Split({"gate": 2, "up": 2}, (1,)),
        empty=lambda rng: {
            k: v[:0] if k in ("lhs", "gather") else v for k, v in draw(rng, 0.0).items()
        },
        unread=unread,
        overflow=overflow,
        call=call,
        bad=BAD,
        scale=2.0,  # a product of two products
    )
