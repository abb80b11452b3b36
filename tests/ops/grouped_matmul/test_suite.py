"""grouped_matmul in the op suite: `ragged_dot`'s form, and gather, scale and combine fused."""

import functools

import jax.numpy as jnp
import numpy as np
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

ROWS, TOKENS, DEPTH, OUTPUTS, GROUPS = 30, 12, 16, 24, 4
FUSED = ("gather", "scatter", "row_weights")


def draw(rng, fill, fused=True):
    """Groups that own the first `fill` of the rows; one of them is empty."""
    share = np.asarray([1, 0, 2, 1]) / 4
    made = {
        "lhs": rng.standard_normal((TOKENS if fused else ROWS, DEPTH), np.float32),
        "rhs": rng.standard_normal((GROUPS, DEPTH, OUTPUTS), np.float32) / np.float32(DEPTH**0.5),
        "group_sizes": rng.multinomial(round(fill * ROWS), share).astype(np.int32),
    }
    if fused:
        made["gather"] = rng.integers(0, TOKENS, ROWS).astype(np.int32)
        made["scatter"] = rng.integers(0, TOKENS, ROWS).astype(np.int32)
        made["row_weights"] = rng.standard_normal(ROWS, np.float32)
    return made


def apply(operands, implementation):
    rows = {"num_rows": TOKENS} if "scatter" in operands else {}
    return js.grouped_matmul(**operands, **rows, implementation=implementation)


def want(operands):
    rest = {k: operands[k] for k in FUSED if k in operands}
    rows = {"num_rows": TOKENS} if rest else {}
    return oracle(operands["lhs"], operands["rhs"], operands["group_sizes"], **rest, **rows)


def unread(operands):
    """What belongs to rows that no group owns, and the weights of the empty group."""
    sizes = operands["group_sizes"]
    unowned = np.arange(ROWS) >= sizes.sum()
    free = {"rhs": np.broadcast_to((sizes == 0)[:, None, None], operands["rhs"].shape)}
    rows = unowned
    if "gather" in operands:
        rows = ~np.isin(np.arange(TOKENS), operands["gather"][~unowned])
        free["row_weights"] = unowned
    return free | {"lhs": np.broadcast_to(rows[:, None], operands["lhs"].shape)}


def empty(rng, fused=True):
    operands = draw(rng, 0.0, fused)
    return {k: v if k in ("rhs", "group_sizes") else v[:0] for k, v in operands.items()}


def overflow(rng, fused=True):
    """Groups that reach past the last row are cut off there."""
    operands = draw(rng, 1.0, fused) | {"group_sizes": np.asarray([9, 9, 9, 9], np.int32)}
    return operands, want(operands), "group_sizes sum to 36"


LHS, RHS = np.ones((6, 4), np.float32), np.ones((3, 4, 5), np.float32)
SIZES, INDICES = np.asarray([2, 1, 3], np.int32), np.arange(6, dtype=np.int32)


def call(**changed):
    return js.grouped_matmul(**{"lhs": LHS, "rhs": RHS, "group_sizes": SIZES, **changed})


FLOATS = "it takes float32, bfloat16 or float16"
INT = "it takes an int"
BAD = {
    "lhs rank": ({"lhs": LHS[0]}, ValueError, r"lhs has shape \(4,\); it needs 2 axes"),
    "lhs int": ({"lhs": LHS.astype(int)}, TypeError, f"lhs has dtype int32; {FLOATS}"),
    "lhs list": ({"lhs": [1.0]}, TypeError, "lhs must be an array, not list"),
    "rhs rank": ({"rhs": RHS[0]}, ValueError, r"rhs has shape \(4, 5\); it needs 3 axes"),
    "rhs dtype": (
        {"rhs": jnp.asarray(RHS, jnp.bfloat16)},
        TypeError,
        "rhs has dtype bfloat16, lhs has float32: they must be equal",
    ),
    "rhs depth": ({"rhs": RHS[:, :3]}, ValueError, r"rhs has shape .* needs \[g, 4, n\]"),
    "rhs unknown": (
        {"rhs": np.full((3, 4, 5), None)},
        TypeError,
        "rhs has dtype object, which jax does not take",
    ),
    "sizes rank": ({"group_sizes": SIZES[None]}, ValueError, "group_sizes .* it needs 1 axis"),
    "sizes count": ({"group_sizes": SIZES[:2]}, ValueError, "group_sizes has 2 entries; rhs has 3"),
    "sizes dtype": (
        {"group_sizes": SIZES.astype(np.float32)},
        TypeError,
        "group_sizes has dtype float32; it takes integers",
    ),
    "gather dtype": (
        {"gather": INDICES.astype(np.float32)},
        TypeError,
        "gather has dtype float32; it takes integers",
    ),
    "gather rank": ({"gather": INDICES[None]}, ValueError, "gather has shape .* it needs 1 axis"),
    "scatter count": (
        {"scatter": INDICES[:4]},
        ValueError,
        "scatter has 4 entries; there are 6 sorted rows",
    ),
    "weights count": (
        {"row_weights": np.ones(4, np.float32)},
        ValueError,
        "row_weights has 4 entries; there are 6 sorted rows",
    ),
    "weights dtype": (
        {"row_weights": INDICES},
        TypeError,
        f"row_weights has dtype int32; {FLOATS}",
    ),
    "num_rows alone": ({"num_rows": 3}, ValueError, "num_rows=3 needs scatter"),
    "num_rows sign": (
        {"num_rows": -1, "scatter": INDICES},
        ValueError,
        "num_rows=-1; it takes 0 to",
    ),
    "num_rows type": ({"num_rows": 6.0, "scatter": INDICES}, TypeError, "num_rows must be an int"),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "three precisions": (
        {"precision": ("highest",) * 3},
        ValueError,
        r"precision=\(.* it takes None",
    ),
    "group_offset": ({"group_offset": SIZES[:1]}, ValueError, "group_offset .* it must be None"),
    "out_sharding": ({"out_sharding": "x"}, ValueError, "out_sharding .* it must be None"),
    "result array": (
        {"preferred_element_type": LHS},
        TypeError,
        "preferred_element_type is an array; it takes float32",
    ),
    "result dtype": (
        {"preferred_element_type": jnp.float16},
        TypeError,
        "preferred_element_type=float16; it takes float32",
    ),
    "result word": (
        {"preferred_element_type": "foo"},
        TypeError,
        "preferred_element_type='foo'; it takes float32",
    ),
}


class TestGroupedMatmul(OpSuite):
    spec = OpSpec(
        name="grouped_matmul",
        serves=(js.grouped_matmul,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("lhs", "rhs", "row_weights"),
        sharded=frozenset({"lhs", "group_sizes", *FUSED}),
        split=Split({"rhs": 2}, (1,)),
        empty=empty,
        unread=unread,
        overflow=overflow,
        call=call,
        bad=BAD,
    )


class TestRaggedDot(OpSuite):
    """`jax.lax.ragged_dot`'s form: rows that are sorted already, each with one result."""

    spec = OpSpec(
        name="ragged_dot",
        serves=(js.grouped_matmul,),
        draw=functools.partial(draw, fused=False),
        apply=apply,
        oracle=want,
        floats=("lhs", "rhs"),
        sharded=frozenset({"lhs", "group_sizes"}),
        split=Split({"rhs": 2}, (1,)),
        empty=functools.partial(empty, fused=False),
        unread=unread,
        overflow=functools.partial(overflow, fused=False),
        call=call,
    )
