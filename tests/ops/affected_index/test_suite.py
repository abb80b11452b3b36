"""affected_index in the op suite: a stage at the mask's resolution, and one at half of it."""

import jax.numpy as jnp
import numpy as np
from index.oracles import listed, spread, tiles_of, words_of
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE, TILE = (2, 11, 38), (4, 8)
STAGES = (((3, 1),), ((3, 2), (3, 1)))


def apply(operands, implementation):
    """Of each stage; lists in ascending order; -1, after the last, stays there."""
    return in_order(listed_by(operands, implementation))


def listed_by(operands, implementation):
    found = js.affected_index(operands["mask"], STAGES, TILE, implementation=implementation)
    return [(i.ids, i.count, i.overflow, i.words) for i in found]


def in_order(found):
    return [
        (jnp.sort(jnp.asarray(v).astype(jnp.uint32)).astype(jnp.int32), *rest) for v, *rest in found
    ]


def want(operands):
    mask, found = operands["mask"], []
    for layers in STAGES:
        for window, stride in layers:
            mask = spread(mask, (window, window), (stride, stride))
        ids = tiles_of(mask, TILE)
        tiles = mask.shape[0] * -(-mask.shape[1] // TILE[0]) * -(-mask.shape[2] // TILE[1])
        found.append((listed(ids, tiles), np.int32(len(ids)), np.bool_(False), words_of(mask)))
    return found


MASK = np.zeros((1, 16, 16), bool)
BITS = "its operand is a mask"


def call(**changed):
    return js.affected_index(**{"mask": MASK, "stages": [[(3, 1)]], "tile": (8, 8), **changed})


PAIRS = r"it takes sequences of \(window, stride\)"
BAD = {
    "no stages": ({"stages": []}, ValueError, "stages has 0 entries; it takes 1 to 4"),
    "five stages": (
        {"stages": [[(3, 1)]] * 5},
        ValueError,
        "stages has 5 entries; it takes 1 to 4",
    ),
    "stage ints": ({"stages": [[3, 1]]}, TypeError, f"stages=.*; {PAIRS}"),
    "stride zero": ({"stages": [[(3, 0)]]}, TypeError, f"stages=.*; {PAIRS}"),
    "gaps": ({"stages": [[(1, 2), (3, 1)]]}, ValueError, "stages: a window .* leave pixels out"),
    "tile": ({"tile": (3, 8)}, ValueError, r"tile=\(3, 8\); each side is one of \(1, 2, 4"),
    "too wide": ({"stages": [[(2**20, 1)] * 2]}, ValueError, "stages: a row of tiles .* may hold"),
}


class TestAffectedIndex(OpSuite):
    spec = OpSpec(
        name="affected_index",
        serves=(js.affected_index,),
        draw=lambda rng, fill: {"mask": rng.random(SHAPE) < (fill if fill == 1 else fill / 20)},
        apply=apply,
        oracle=want,
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}, (0, None, None, 0) * len(STAGES), in_order, apply=listed_by),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool)},
        call=call,
        bad=BAD,
        inapplicable={
            "16_bits": BITS,
            "gradient": BITS,
            "gradient_of_16_bits": BITS,
            "second_derivative": BITS,
            "nothing_is_read_that_does_not_count": BITS,
            "overflow_is_flagged_and_written_nowhere": "its lists have room for every tile",
        },
    )
