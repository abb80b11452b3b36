"""token_index in the op suite."""

import jax.numpy as jnp
import numpy as np
from index.oracles import listed, tiles_of, words_of
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE = (2, 3, 37)


def apply(operands, implementation):
    """Its list in ascending order; -1, after the last, stays there."""
    return in_order(listed_by(operands, implementation))


def listed_by(operands, implementation):
    index = js.token_index(operands["mask"], implementation=implementation)
    return index.ids, index.count, index.overflow, index.words


def in_order(found):
    ids, *rest = found
    return jnp.sort(jnp.asarray(ids).astype(jnp.uint32)).astype(jnp.int32), *rest


def want(operands):
    mask = operands["mask"]
    image = mask.reshape(-1, 1, mask.shape[-1])
    ids = tiles_of(image, (1, 1))
    return listed(ids, mask.size), np.int32(len(ids)), np.bool_(False), words_of(image)


MASK = np.ones((2, 5), bool)
BITS = "its operand is a mask"


class TestTokenIndex(OpSuite):
    spec = OpSpec(
        name="token_index",
        serves=(js.token_index,),
        draw=lambda rng, fill: {"mask": rng.random(SHAPE) < fill},
        apply=apply,
        oracle=want,
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}, (0, None, None, 0), in_order, apply=listed_by),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool)},
        call=lambda **changed: js.token_index(**{"mask": MASK, **changed}),
        bad={
            "dtype": (
                {"mask": MASK.astype(np.float32)},
                TypeError,
                "mask has dtype float32; it takes bool",
            ),
            "list": ({"mask": [True]}, TypeError, "mask must be an array, not list"),
            "scalar": (
                {"mask": np.bool_(True)},
                ValueError,
                "mask is a scalar; it needs",
            ),
        },
        inapplicable={
            "16_bits": BITS,
            "gradient": BITS,
            "gradient_of_16_bits": BITS,
            "second_derivative": BITS,
            "nothing_is_read_that_does_not_count": BITS,
            "overflow_is_flagged_and_written_nowhere": "it has room for every token",
        },
    )
