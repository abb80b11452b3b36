"""kept_matmul in the op suite: a matrix whose last blocks are cut off by its edges."""

import jax.numpy as jnp
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

M, K, N = 12, 20, 16
BLOCK, GRID, ROOM = (4, 8), (3, 3), 7


def draw(rng, fill):
    """A mask of at most ROOM blocks; what free slots and padding hold is not read."""
    mask = np.zeros(9, bool)
    mask[rng.permutation(9)[: round(ROOM * fill)]] = True
    return {
        "values": rng.standard_normal((ROOM, *BLOCK), np.float32),
        "mask": mask.reshape(GRID),
        "b": rng.standard_normal((2, K, N), np.float32) / np.float32(K**0.5),
    }


def want(operands):
    dense = np.zeros((GRID[0] * BLOCK[0], GRID[1] * BLOCK[1]))
    for block, (i, j) in zip(operands["values"], np.argwhere(operands["mask"]), strict=False):
        dense[4 * i : 4 * i + 4, 8 * j : 8 * j + 8] = block
    return dense[:M, :K] @ operands["b"]


def unread(operands):
    free = np.ones((ROOM, *BLOCK), bool)
    for slot, (_, j) in enumerate(np.argwhere(operands["mask"])):
        free[slot] = np.arange(8) + 8 * j >= K
    return {"values": free}


def apply(operands, implementation):
    kept = js.kept_blocks(operands["mask"], (M, K), BLOCK, capacity=ROOM)
    return js.kept_matmul(operands["values"], kept, operands["b"], implementation=implementation)


VALUES, B = np.ones((3, *BLOCK), np.float32), np.ones((K, N), np.float32)


def call(**changed):
    kept = js.kept_blocks(np.eye(3, dtype=bool), (M, K), BLOCK, capacity=3)
    return js.kept_matmul(**{"values": VALUES, "kept": kept, "b": B, **changed})


BAD = {
    "kept type": ({"kept": np.eye(3)}, TypeError, "kept must be the KeptBlocks of js.kept_blocks"),
    "values list": ({"values": [1.0]}, TypeError, "values must be an array, not list"),
    "values shape": ({"values": VALUES[:2]}, ValueError, r"values has shape \(2, 4, 8\).*\(3, 4"),
    "values int": ({"values": VALUES.astype(int)}, TypeError, "values has dtype int"),
    "b dtype": ({"b": jnp.asarray(B, jnp.bfloat16)}, TypeError, "b has dtype bfloat16"),
    "b depth": ({"b": B[:5]}, ValueError, r"b has shape \(5, 16\); kept is of \(12, 20\)"),
    "density": ({"density": 2}, ValueError, "density=2; it takes"),
}


class TestKeptMatmul(OpSuite):
    spec = OpSpec(
        name="kept_matmul",
        serves=(js.kept_matmul,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("values", "b"),
        sharded=frozenset({"b"}),
        split=Split({"b": 0}),
        empty=lambda rng: {**draw(rng, 0.5), "b": np.zeros((0, K, N), np.float32)},
        unread=unread,
        call=call,
        bad=BAD,
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": "kept_blocks drops blocks past the capacity",
        },
    )
