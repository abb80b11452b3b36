"""sparse_ffn in the op suite: with a gate and top-k, and plain on more tokens than one call takes.

Pre-activations are kept away from 0, where an activation would be on in one dtype and off in
another: the rows of the first weight are steered by x's first entry.
"""

import jax.numpy as jnp
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

D, F, OUT = 8, 40, 24


def draw_for(tokens, gated):
    def draw(rng, fill):
        """A share `fill` of the activations is above 0, far enough for every dtype."""
        on = rng.random(F) < fill
        x = rng.standard_normal((2, tokens // 2, D), np.float32) / 8
        x[..., 0] = 1
        first = rng.standard_normal((D, F), np.float32) / 8
        first[0] = np.where(on, 1.0, -1.0) * (1 + rng.random(F))
        w = {"w_gate": first, "w_up": rng.standard_normal((D, F), np.float32)}
        weights = w if gated else {"w_up": first}
        return {"x": x, **weights, "w_down": rng.standard_normal((F, OUT), np.float32) / 3}

    return draw


def hidden(operands, activation, top_k):
    up = operands["x"] @ operands["w_up"]
    pre = operands["x"] @ operands["w_gate"] if "w_gate" in operands else up
    h = np.maximum(pre, 0) ** (2 if activation == "relu2" else 1)
    h = h * up if "w_gate" in operands else h
    if top_k is None:
        return h
    order = np.argsort(-np.abs(h), axis=-1, kind="stable")[..., :top_k]
    kept = np.zeros_like(h)
    np.put_along_axis(kept, order, np.take_along_axis(h, order, -1), -1)
    return kept


def turned(operands):
    """With w_up transposed."""
    return operands | {"w_up": operands["w_up"].T}


def spec(name, tokens, *, gated, transposed=False, **options):
    def apply(operands, implementation):
        return js.sparse_ffn(
            **operands, **options, transposed_up=transposed, implementation=implementation
        )

    def want(operands):
        given = {"activation": "relu", "top_k": None} | options
        operands = turned(operands) if transposed else operands
        return hidden(operands, **given) @ operands["w_down"]

    def draw(rng, fill):
        drawn = draw_for(tokens, gated)(rng, fill)
        return turned(drawn) if transposed else drawn

    reads = "a product by XLA reads every weight; what is skipped may be read or not"
    return OpSpec(
        name=name,
        serves=(js.sparse_ffn,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "w_up", "w_down", *(("w_gate",) if gated else ())),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        empty=lambda rng: {k: v[:0] if k == "x" else v for k, v in draw(rng, 0.5).items()},
        call=call,
        bad=BAD,
        scale=2.0,
        inapplicable={
            "nothing_is_read_that_does_not_count": reads,
            "overflow_is_flagged_and_written_nowhere": "there is no capacity",
        },
    )


X, UP, DOWN = (np.ones(s, np.float32) for s in ((2, 5, 8), (8, 12), (12, 6)))


def call(**changed):
    return js.sparse_ffn(**{"x": X, "w_up": UP, "w_down": DOWN, **changed})


BAD = {
    "x rank": ({"x": np.float32(1)}, ValueError, r"x has shape \(\); it needs at least 1 axis"),
    "x int": ({"x": X.astype(int)}, TypeError, "x has dtype int32; it takes float32, bfloat16 or"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array, not list"),
    "up rank": ({"w_up": UP[0]}, ValueError, r"w_up has shape \(12,\); it needs 2 axes"),
    "up depth": ({"w_up": UP[:4]}, ValueError, r"w_up has shape \(4, 12\); x .* needs \[8, f\]"),
    "up dtype": (
        {"w_up": UP.astype(jnp.bfloat16)},
        TypeError,
        r"w_up has dtype bfloat16, x has float32: they must be equal: w_up\.astype\(x\.dtype\)",
    ),
    "down rows": (
        {"w_down": DOWN[:4]},
        ValueError,
        r"w_down has shape \(4, 6\); w_up \(8, 12\) needs \[12, d_out\]",
    ),
    "gate shape": (
        {"w_gate": UP[:, :3]},
        ValueError,
        r"w_gate has shape \(8, 3\); it takes \(8, 12\), by x and w_up",
    ),
    "gate list": ({"w_gate": [[1.0]]}, TypeError, "w_gate must be an array, not list"),
    "activation": (
        {"activation": "gelu"},
        ValueError,
        "activation='gelu'; it takes 'relu' or 'relu2'",
    ),
    "top_k zero": ({"top_k": 0}, ValueError, "top_k=0; it takes a positive int"),
    "top_k float": ({"top_k": 0.5}, TypeError, "top_k=0.5; it takes a positive int"),
    "transposed": (
        {"transposed_up": True},
        ValueError,
        r"w_up has shape \(8, 12\); x .* needs \[f, 8\] with transposed_up",
    ),
    "transposed number": ({"transposed_up": 1}, TypeError, "transposed_up must be a bool, not int"),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
}


class TestSparseFfn(OpSuite):
    spec = spec("sparse_ffn", 4, gated=True, activation="relu2")


class TestSparseFfnOfManyTokens(OpSuite):
    spec = spec("sparse_ffn, many tokens", 40, gated=False)


class TestSparseFfnOfTransposedUp(OpSuite):
    spec = spec("sparse_ffn, transposed_up", 4, gated=True, transposed=True)
