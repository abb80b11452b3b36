"""The function of `js.nn.sparse_attention_fn` in the op suite. In flax's layers it is tested in
tests/nn/test_attention.py.
"""

import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite
from ops.sparse_attention import test_suite as op
from ops.sparse_attention.oracle import attention

import jaxsparse as js

SAME = "the function that it returns calls js.sparse_attention, whose suite checks this"


def draw(rng, fill):
    return {k: v for k, v in op.draw(rng, fill).items() if k != "slopes"}


def want(operands):
    arrays = {k: np.asarray(operands[k], np.float64) for k in ("q", "k", "v", "bias")}
    return attention(**arrays, keep=op.kept(operands), scale=op.H**-0.5)[0]


def apply(operands, implementation):
    mask = js.BlockMask(
        *operands["lists"], operands["words"], operands["lost"], op.BLOCK, op.T, op.S
    )
    run = js.nn.sparse_attention_fn(mask, implementation=implementation)
    return run(*(operands[k] for k in "qkv"), bias=operands["bias"])


def overflow(rng):
    operands = {**draw(rng, 0.5), "lost": np.ones((), bool)}
    return operands, want(operands), "block_mask.overflow is set"


def call(q=op.Q, k=op.K, v=op.V, dropout_rate=0.0, sow_weights=None, **changed):
    run = js.nn.sparse_attention_fn(**{"block_mask": op.MASK, **changed})
    return run(q, k, v, dropout_rate=dropout_rate, module=sow_weights)


class TestSparseAttentionFn(OpSuite):
    spec = OpSpec(
        name="nn.sparse_attention_fn",
        serves=(js.nn.sparse_attention_fn,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("q", "k", "v"),
        sharded=frozenset({"q", "k", "v", "lists"}),
        split=Split({"q": 0, "k": 0, "v": 0, "lists": 0}),
        unread=op.unread,
        overflow=overflow,
        call=call,
        bad={
            "mask": ({"block_mask": op.DENSE}, TypeError, "block_mask must be a BlockMask"),
            "query": ({"q": op.Q[:, :7]}, ValueError, "q has 7 tokens"),
            "dropout": ({"dropout_rate": 0.5}, ValueError, r"dropout_rate=0\.5"),
            "sow": ({"sow_weights": object()}, ValueError, "sow_weights"),
        },
        inapplicable={
            "no_elements": SAME,
            "second_derivative": SAME,
            "vmap_over_nothing": SAME,
            "scan_and_remat": SAME,
            "shard_map": SAME,
            "bitwise_repeat": SAME,
        },
    )
