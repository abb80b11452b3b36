"""top_experts, the op behind MoE's router, in the op suite."""

import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

from jaxsparse.ops.top_experts.api import TopExperts, top_experts

TOKENS, EXPERTS, TOP_K = 10, 9, 3


def draw(rng, fill):
    return {
        "logits": rng.standard_normal((TOKENS, EXPERTS), np.float32),
        "mask": rng.random(TOKENS) < fill,
    }


def apply(operands, implementation):
    options = {"normalize": True, "implementation": implementation}
    return top_experts(operands["logits"], TOP_K, mask=operands["mask"], **options)


def want(operands):
    """In float64, one token after the other."""
    logits = np.asarray(operands["logits"], np.float64)
    ids = np.full((len(logits), TOP_K), -1)
    weights, sums = np.zeros(ids.shape), np.zeros(EXPERTS)
    for t in np.flatnonzero(operands["mask"]):
        share = np.exp(logits[t] - logits[t].max())
        share /= share.sum()
        ids[t] = np.argsort(-logits[t], kind="stable")[:TOP_K]
        weights[t] = share[ids[t]] / share[ids[t]].sum()
        sums += share
    return TopExperts(ids, weights, sums)


LOGITS = np.zeros((4, 6), np.float32)


def call(**changed):
    return top_experts(**{"logits": LOGITS, "top_k": 2, **changed})


FLOAT32 = "it takes float32"


class TestTopExperts(OpSuite):
    spec = OpSpec(
        name="top_experts",
        serves=(top_experts,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("logits",),
        sharded=frozenset({"logits", "mask"}),
        split=Split({"logits": 0, "mask": 0}, (0, 0, None)),
        empty=lambda rng: {k: v[:0] for k, v in draw(rng, 0.5).items()},
        unread=lambda operands: {
            "logits": np.broadcast_to(~operands["mask"][:, None], (TOKENS, EXPERTS))
        },
        call=call,
        bad={
            "rank": (
                {"logits": LOGITS[0]},
                ValueError,
                r"logits has shape \(6,\); it needs 2 axes",
            ),
            "dtype": (
                {"logits": LOGITS.astype(np.float16)},
                TypeError,
                "logits has dtype float16; it takes float32",
            ),
            "top_k past": ({"top_k": 7}, ValueError, "top_k=7 is more than the 6 experts"),
            "top_k zero": ({"top_k": 0}, ValueError, "top_k=0; it takes a positive int"),
            "mask dtype": (
                {"mask": np.ones(4, np.float32)},
                TypeError,
                "mask has dtype float32; it takes a bool mask: `mask != 0` makes one",
            ),
            "mask shape": (
                {"mask": np.ones(3, bool)},
                ValueError,
                r"mask has shape \(3,\); the tokens are \(4,\)",
            ),
        },
        inapplicable={
            "16_bits": FLOAT32,
            "gradient_of_16_bits": FLOAT32,
            "overflow_is_flagged_and_written_nowhere": "every token has room for its experts",
        },
    )
