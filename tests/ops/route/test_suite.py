"""route in the op suite."""

import numpy as np
from ops.grouped_matmul.oracle import route as oracle
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

TOKENS, TOP_K, EXPERTS = 10, 2, 5


def draw(rng, fill):
    """Ids of which `fill` are experts; the others are -1, none."""
    ids = rng.integers(0, EXPERTS, (TOKENS, TOP_K))
    return {"expert_ids": np.where(rng.random(ids.shape) < fill, ids, -1).astype(np.int32)}


def apply(operands, implementation):
    return js.route(operands["expert_ids"], EXPERTS, implementation=implementation)


def want(operands):
    order, sizes = oracle(operands["expert_ids"], EXPERTS)
    return js.Routing(order, order // TOP_K, order // TOP_K, sizes)


def overflow(rng):
    """Ids past the last expert belong to no group."""
    ids = draw(rng, 1.0)["expert_ids"]
    ids[[1, 7], [0, 1]] = EXPERTS, 999
    return {"expert_ids": ids}, want({"expert_ids": ids}), "expert_ids has 2 ids past the 5 experts"


IDS = np.zeros((6, 1), np.int32)


def call(**changed):
    return js.route(**{"expert_ids": IDS, "num_experts": 3, **changed})


INTEGERS = "its operands are integers"


class TestRoute(OpSuite):
    spec = OpSpec(
        name="route",
        serves=(js.route,),
        draw=draw,
        apply=apply,
        oracle=want,
        sharded=frozenset({"expert_ids"}),
        empty=lambda rng: {"expert_ids": np.zeros((0, TOP_K), np.int32)},
        overflow=overflow,
        call=call,
        bad={
            "rank": (
                {"expert_ids": IDS[0]},
                ValueError,
                r"expert_ids has shape .* it needs 2 axes",
            ),
            "dtype": (
                {"expert_ids": IDS.astype(np.float32)},
                TypeError,
                "expert_ids has dtype float32; it takes integers",
            ),
            "list": ({"expert_ids": [[1]]}, TypeError, "expert_ids must be an array, not list"),
            "experts type": ({"num_experts": 3.0}, TypeError, "num_experts must be an int"),
            "experts bool": ({"num_experts": True}, TypeError, "num_experts must be an int"),
            "experts sign": (
                {"num_experts": -1},
                ValueError,
                r"^num_experts=-1; it takes 0 to 2\^31",
            ),
        },
        inapplicable={
            "split_by_a_mesh": "the assignments of all tokens are sorted together",
            "16_bits": INTEGERS,
            "gradient": INTEGERS,
            "gradient_of_16_bits": INTEGERS,
            "second_derivative": INTEGERS,
            "nothing_is_read_that_does_not_count": INTEGERS,
        },
    )
