"""masked_matmul in the op suite: a batch with masks on all three, and a second operand for all."""

import jax.numpy as jnp
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

BATCH, M, K, N = 2, 12, 20, 24
BLOCK = (4, 8)
SIDES = {"a_mask": (M, K), "b_mask": (K, N), "out_mask": (M, N)}


def draw(rng, fill):
    made = {
        "a": rng.standard_normal((BATCH, M, K), np.float32),
        "b": rng.standard_normal((K, N), np.float32) / np.float32(K**0.5),
    }
    for name, side in SIDES.items():
        blocks = [-(-n // g) for n, g in zip(side, BLOCK, strict=True)]
        made[name] = rng.random(blocks if name == "b_mask" else [BATCH, *blocks]) < fill
    return made


def entries(operands, name):
    """The mask of entries, by numpy's own indexing."""
    rows, columns = (np.arange(n) // g for n, g in zip(SIDES[name], BLOCK, strict=True))
    return operands[name][..., rows[:, None], columns]


def want(operands):
    a = np.where(entries(operands, "a_mask"), operands["a"], 0)
    b = np.where(entries(operands, "b_mask"), operands["b"], 0)
    return np.where(entries(operands, "out_mask"), a @ b, 0)


def apply(operands, implementation):
    return js.masked_matmul(**operands, granularity=BLOCK, implementation=implementation)


A, B = np.ones((6, 8), np.float32), np.ones((8, 10), np.float32)
MASK = np.ones((3, 2), bool)


def call(**changed):
    return js.masked_matmul(**{"a": A, "b": B, "granularity": (2, 4), **changed})


BAD = {
    "a list": ({"a": [1.0]}, TypeError, "a must be an array, not list"),
    "a rank": ({"a": A[0]}, ValueError, r"a has shape \(8,\); it needs at least 2 axes"),
    "a int": ({"a": A.astype(int)}, TypeError, "a has dtype int32; it takes float32, bfloat16 or"),
    "b dtype": (
        {"b": jnp.asarray(B, jnp.bfloat16)},
        TypeError,
        "b has dtype bfloat16, a has float32: they must be equal",
    ),
    "b depth": ({"b": B[:5]}, ValueError, r"b has shape \(5, 10\); a .* needs \[..., 8, n\]"),
    "mask dtype": (
        {"a_mask": MASK.astype(int)},
        TypeError,
        "a_mask has dtype int(32|64); it takes bool",
    ),
    "mask shape": ({"a_mask": MASK[:2]}, ValueError, r"a_mask has shape \(2, 2\).* \[*3, 2"),
    "mask list": ({"b_mask": [True]}, TypeError, "b_mask must be an array, not list"),
    "batch": (
        {"a": np.ones((2, 6, 8), np.float32), "b": np.ones((3, 8, 10), np.float32)},
        ValueError,
        r"leading axes do not broadcast: a \(2,\), b \(3,\)",
    ),
    "granularity zero": (
        {"granularity": (0, 4)},
        ValueError,
        r"granularity=\(0, 4\); a block has 1 to 2",
    ),
    "granularity type": ({"granularity": 4}, TypeError, "granularity takes two ints"),
    "granularity key": ({"granularity": {"c": (1, 1)}}, ValueError, "granularity has the keys"),
    "granularity keys": (
        {"granularity": {"c": (1, 1), 1: (1, 1)}},
        ValueError,
        r"granularity .*\['c', 1\]",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "result dtype": (
        {"preferred_element_type": jnp.float16},
        TypeError,
        "preferred_element_type=float16; it takes float32",
    ),
    "density share": ({"density": 1.5}, ValueError, "density=1.5; it takes"),
    "density nan": ({"density": float("nan")}, ValueError, "density=nan; it takes"),
    "density type": ({"density": "low"}, TypeError, "density='low'; it takes"),
    "density array": ({"density": jnp.float32(0.5)}, TypeError, "density=.*; it takes"),
}


class TestMaskedMatmul(OpSuite):
    spec = OpSpec(
        name="masked_matmul",
        serves=(js.masked_matmul,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("a", "b"),
        sharded=frozenset({"a", "a_mask", "out_mask"}),
        split=Split({"a": 0, "a_mask": 0, "out_mask": 0}),
        empty=lambda rng: {
            k: v if k in ("b", "b_mask") else v[:0] for k, v in draw(rng, 0.5).items()
        },
        unread=lambda operands: {k: ~entries(operands, f"{k}_mask") for k in ("a", "b")},
        call=call,
        bad=BAD,
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": "masks have room for every block",
        },
    )
