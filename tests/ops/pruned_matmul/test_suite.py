"""pruned_matmul in the op suite, and the `dot_general` for flax that calls it."""

import contextlib
import functools

import numpy as np
from ops.op_sharding import Split
from ops.op_spec import Fixed
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

ROWS, DEPTH, OUTPUTS = 9, 20, 30
NO_CAPACITY = "a plan has room for every kept weight"


@functools.cache
def plan(fill):
    """A plan that keeps `fill` of the weights: static, so one object for each pattern."""
    rng = np.random.default_rng(7)
    kept = (rng.random((DEPTH, OUTPUTS)) < fill).astype(np.float32)
    return Fixed(js.pruned.inspect(kept))


def draw(rng, fill):
    return {
        "x": rng.standard_normal((ROWS, DEPTH), np.float32),
        "w": rng.standard_normal((DEPTH, OUTPUTS), np.float32) / np.float32(DEPTH**0.5),
        "bias": rng.standard_normal(OUTPUTS, np.float32),
        "plan": plan(fill),
    }


def kept(operands):
    return np.asarray(operands["plan"].value.to_dense()) != 0


def forced(implementation):
    """The sparse executor, whatever the estimate says."""
    sparse = {"cpu": "strips", "cuda": "rows"}.get(implementation)
    return js.config(variant=sparse) if sparse else contextlib.nullcontext()


def apply(operands, implementation):
    pruned = operands["plan"].value.from_dense(operands["w"])
    options = {"activation": "silu", "implementation": implementation}
    with forced(implementation):
        return js.pruned_matmul(operands["x"], pruned, bias=operands["bias"], **options)


def want(operands):
    y = operands["x"] @ np.where(kept(operands), operands["w"], 0) + operands["bias"]
    return y / (1 + np.exp(-y))


X = np.ones((3, 4), np.float32)
PRUNED = js.pruned.inspect(np.eye(4, 5, dtype=np.float32))
CONV = js.pruned.inspect(np.ones((3, 3, 4, 8), np.float32), kind="conv")


def call(**changed):
    return js.pruned_matmul(**{"x": X, "pruned": PRUNED, **changed})


BAD = {
    "weight": (
        {"pruned": np.eye(4)},
        TypeError,
        "pruned must be a PrunedWeight, not .* js.pruned.inspect",
    ),
    "kind": (
        {"pruned": CONV},
        ValueError,
        "pruned is a plan for kind='conv'; this op takes 'matmul'",
    ),
    "x list": ({"x": [1.0]}, TypeError, r"x must be an array \[\*batch, k\], not list"),
    "x scalar": ({"x": np.float32(1)}, ValueError, r"x has shape \(\); it needs \[\*batch, k\]"),
    "x depth": ({"x": X[:, :3]}, ValueError, r"x has shape \(3, 3\); .* needs \[\*batch, 4\]"),
    "x int": ({"x": X.astype(int)}, TypeError, "x has dtype int32; it takes float32, bfloat16 or"),
    "x dtype": (
        {"x": X.astype(np.float16)},
        TypeError,
        "pruned has dtype float32, x has float16: they must be equal",
    ),
    "bias shape": (
        {"bias": np.zeros(3, np.float32)},
        ValueError,
        r"bias has shape \(3,\); the plan has 5 outputs",
    ),
    "bias dtype": ({"bias": np.ones(5, int)}, TypeError, "bias has dtype int32; it takes float32"),
    "activation": (
        {"activation": "tan"},
        ValueError,
        "activation='tan' is not one of None",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "result dtype": (
        {"preferred_element_type": np.float16},
        TypeError,
        "preferred_element_type=float16; it takes float32",
    ),
}


class TestPrunedMatmul(OpSuite):
    spec = OpSpec(
        name="pruned_matmul",
        serves=(js.pruned_matmul,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "w", "bias"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        empty=lambda rng: {k: v[:0] if k == "x" else v for k, v in draw(rng, 0.4).items()},
        unread=lambda operands: {"w": ~kept(operands)},
        call=call,
        bad=BAD,
        fills=(0.4, 0.4),  # a pattern is static: one trace serves its values
        inapplicable={"overflow_is_flagged_and_written_nowhere": NO_CAPACITY},
    )


def as_dot_general(operands, implementation):
    product = js.nn.pruned_dot_general(
        operands["plan"].value, from_kernel=True, implementation=implementation
    )
    with forced(implementation):
        return product(operands["x"], operands["w"], (((1,), (0,)), ((), ())))


def call_dot_general(lhs=X, rhs=None, dimension_numbers=(((1,), (0,)), ((), ())), **changed):
    product = js.nn.pruned_dot_general(**{"pruned": PRUNED, **changed})
    return product(lhs, np.zeros((4, 5), np.float32) if rhs is None else rhs, dimension_numbers)


def without_bias(draw):
    return lambda *args: {k: v for k, v in draw(*args).items() if k != "bias"}


SAME = "the function that it returns calls js.pruned_matmul, whose suite checks this"


class TestPrunedDotGeneral(OpSuite):
    spec = OpSpec(
        name="nn.pruned_dot_general",
        serves=(js.nn.pruned_dot_general,),
        draw=without_bias(draw),
        apply=as_dot_general,
        oracle=lambda operands: operands["x"] @ np.where(kept(operands), operands["w"], 0),
        floats=("x", "w"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        unread=lambda operands: {"w": ~kept(operands)},
        call=call_dot_general,
        bad={
            "weight": ({"pruned": np.eye(4)}, TypeError, "pruned must be a PrunedWeight"),
            "kind": ({"pruned": CONV}, ValueError, "pruned is a plan for kind='conv'; .* 'matmul'"),
            "lhs int": ({"lhs": X.astype(int)}, TypeError, "lhs has dtype int.*; it takes float32"),
            "dimension_numbers": (
                {"dimension_numbers": (((0,), (0,)), ((), ()))},
                ValueError,
                r"dimension_numbers=.*: a frozen weight takes \(\(\(1,\), \(0,\)\)",
            ),
        },
        fills=(0.4, 0.4),
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": NO_CAPACITY,
            "no_elements": SAME,
            "second_derivative": SAME,
            "vmap_over_nothing": SAME,
            "scan_and_remat": SAME,
            "shard_map": SAME,
            "bitwise_repeat": SAME,
        },
    )
