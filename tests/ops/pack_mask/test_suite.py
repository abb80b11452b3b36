"""pack_mask and unpack_mask in the op suite."""

import numpy as np
from index.oracles import words_of
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE = (2, 5, 70)
BITS = "its operand is a mask"
INAPPLICABLE = {
    "16_bits": BITS,
    "gradient": BITS,
    "gradient_of_16_bits": BITS,
    "second_derivative": BITS,
    "nothing_is_read_that_does_not_count": BITS,
    "overflow_is_flagged_and_written_nowhere": "its result has a bit for every entry",
}
MASK, WORDS = np.ones((2, 70), bool), np.ones((2, 3), np.uint32)


class TestPackMask(OpSuite):
    spec = OpSpec(
        name="pack_mask",
        serves=(js.pack_mask,),
        draw=lambda rng, fill: {"mask": rng.random(SHAPE) < fill},
        apply=lambda operands, name: js.pack_mask(operands["mask"], implementation=name),
        oracle=lambda operands: words_of(operands["mask"]),
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool)},
        call=lambda **changed: js.pack_mask(**{"mask": MASK, **changed}),
        bad={
            "dtype": (
                {"mask": MASK.astype(np.float32)},
                TypeError,
                "mask has dtype float32; it takes bool",
            ),
            "list": ({"mask": [True]}, TypeError, "mask must be an array, not list"),
            "scalar": ({"mask": np.bool_(True)}, ValueError, "mask is a scalar; it needs at least"),
        },
        inapplicable=INAPPLICABLE,
    )


class TestUnpackMask(OpSuite):
    """Of words whose bits past the end are set: they are ignored."""

    spec = OpSpec(
        name="unpack_mask",
        serves=(js.unpack_mask,),
        draw=lambda rng, fill: {
            "words": words_of(rng.random(SHAPE) < fill) | np.asarray([0, 0, 0xFFFFFFC0], np.uint32)
        },
        apply=lambda operands, name: js.unpack_mask(operands["words"], 70, implementation=name),
        oracle=lambda operands: np.unpackbits(
            operands["words"].astype("<u4").view(np.uint8), axis=-1, bitorder="little"
        )[..., :70].astype(bool),
        sharded=frozenset({"words"}),
        split=Split({"words": 0}),
        empty=lambda rng: {"words": np.zeros((0, 5, 3), np.uint32)},
        call=lambda **changed: js.unpack_mask(**{"words": WORDS, "n": 70, **changed}),
        bad={
            "dtype": ({"words": MASK}, TypeError, "words has dtype bool; it takes uint32"),
            "count": ({"n": 3}, ValueError, "words has 3 words on its last axis; n=3 needs 1"),
            "sign": ({"n": -1}, ValueError, r"^n=-1; it takes 0 to 2\^31"),
            "type": ({"n": 3.0}, TypeError, "n must be an int, not float"),
        },
        inapplicable=INAPPLICABLE,
    )
