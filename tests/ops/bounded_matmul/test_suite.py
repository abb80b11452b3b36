"""bounded_matmul in the op suite: a layer whose weights are operands, on values of which codes say
which are not read. And `bounded.converged`, a stack of layers.
"""

import functools

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from bounded.stacks import layers_of, oracle, signed
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

BATCH, INPUTS, OUTPUTS = 6, 20, 26
READ, WRITTEN, UPPER = 5, 4, 1.5  # elements of a code of the input, of the result; the bound


@functools.cache
def layer():
    (weight,), (bias,), _ = signed(np.random.default_rng(7), (INPUTS, OUTPUTS), 0.4)
    return js.bounded.inspect(weight.T, bias, UPPER, fold=False)


def draw(rng, fill):
    """Codes of which `fill` say nothing; the others stand for zeros and for the bound."""
    codes = rng.integers(1, 3, (BATCH, INPUTS // READ))
    shape = layer().weights.shape
    return {
        "x": rng.standard_normal((BATCH, INPUTS), np.float32),
        "weights": rng.standard_normal(shape, np.float32) * np.float32(0.5),
        "bias": rng.standard_normal(OUTPUTS, np.float32) * np.float32(0.3),
        "codes": np.where(rng.random(codes.shape) < fill, 0, codes).astype(np.uint8),
        "layer": layer(),
    }


def apply(operands, implementation):
    acts = js.bounded.Activations(
        operands["x"], js.recorder.Recorder(operands["codes"], READ, UPPER)
    )
    values = operands["layer"].with_values(operands["weights"], operands["bias"])
    out = js.bounded_matmul(acts, values, segment=WRITTEN, implementation=implementation)
    return out.materialize(), out.recorder.codes


def spread(operands):
    return np.repeat(operands["codes"], READ, axis=-1)


def codes_of(values, segment, upper):
    """1 where all of a segment is zero, 2 where all of it is the bound, 0 elsewhere."""
    pieces = [values[:, i : i + segment] for i in range(0, values.shape[1], segment)]
    zero = np.stack([(p == 0).all(1) for p in pieces], 1)
    full = np.stack([(p == upper).all(1) for p in pieces], 1)
    return np.where(zero, 1, np.where(full, 2, 0)).astype(np.uint8)


def want(operands):
    codes, shape = spread(operands), (OUTPUTS, INPUTS)
    x = np.where(codes == 1, 0, np.where(codes == 2, UPPER, operands["x"]))
    parts = (operands["weights"], layer().indices, layer().starts)
    y = np.clip((sp.csr_matrix(parts, shape) @ x.T).T + operands["bias"], 0, UPPER)
    return y, codes_of(y, WRITTEN, UPPER)


ACTS = np.zeros((2, 4), np.float32)
LAYER = js.bounded.inspect(np.eye(4), 0.0, 1.0)
FLOAT32 = "it takes float32"
NO_CAPACITY = "its result has room for every value"


def call(recorder=None, **changed):
    if recorder is not None:
        changed["acts"] = js.bounded.Activations(jnp.asarray(ACTS), recorder)
    return js.bounded_matmul(**{"acts": ACTS, "layer": LAYER, **changed})


def recorded(codes, segment=2, upper=1.0):
    return {"recorder": js.recorder.Recorder(codes, segment, upper)}


CODES = np.zeros((2, 2), np.uint8)
BAD = {
    "acts list": ({"acts": [1.0]}, TypeError, "acts must be an array or Activations, not list"),
    "acts rank": ({"acts": ACTS[0]}, ValueError, r"acts has shape \(4,\); it needs \[batch, n\]"),
    "acts dtype": (
        {"acts": ACTS.astype(np.float16)},
        TypeError,
        "acts has dtype float16; it takes",
    ),
    "acts width": ({"acts": ACTS[:, :3]}, ValueError, "acts has 3 columns; the layer takes n_in=4"),
    "layer": (
        {"layer": np.eye(4)},
        TypeError,
        "layer must be a js.bounded.Layer, not ndarray: see",
    ),
    "layers": (
        {"layer": js.bounded.stack([LAYER, LAYER])},
        ValueError,
        "layer is a stack of layers: scan over it",
    ),
    "dataflow": (
        {"dataflow": "diagonal"},
        ValueError,
        "dataflow='diagonal' is not one of 'row', 'slab'",
    ),
    "segment zero": ({"segment": 0}, ValueError, "segment=0; it takes a positive int"),
    "segment fraction": ({"segment": 1.5}, ValueError, "segment=1.5; it takes a positive int"),
    "record": ({"record": "no"}, TypeError, "record must be a bool, not str"),
    "codes shape": (recorded(CODES[:, :1]), ValueError, r"codes \(2, 1\); acts .* needs \(2, 2\)"),
    "codes dtype": (
        recorded(CODES.astype(int)),
        TypeError,
        "recorder has codes of int64; they are uint8",
    ),
}


class TestBoundedMatmul(OpSuite):
    spec = OpSpec(
        name="bounded_matmul",
        serves=(js.bounded_matmul,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "weights", "bias"),
        sharded=frozenset({"x", "codes"}),
        split=Split({"x": 0, "codes": 0}, (0, 0)),
        empty=lambda rng: {
            k: v[:0] if k in ("x", "codes") else v for k, v in draw(rng, 0.5).items()
        },
        unread=lambda operands: {"x": spread(operands) != 0},
        call=call,
        bad=BAD,
        inapplicable={
            "16_bits": FLOAT32,
            "gradient_of_16_bits": FLOAT32,
            "overflow_is_flagged_and_written_nowhere": NO_CAPACITY,
        },
    )


@functools.cache
def stack():
    made = signed(np.random.default_rng(5), (INPUTS, 24, OUTPUTS))
    return made, layers_of(made)


def images(rng, fill):
    """Images of which `fill` differ; the others are the first one."""
    x = rng.random((8, INPUTS), np.float32)
    same = rng.random(8) >= fill
    return {"acts": np.where(same[:, None], x[:1], x), "layers": stack()[1]}


def converged(operands, implementation):
    options = {"threshold": 1, "centroids": 2, "implementation": implementation}
    return js.bounded.converged(operands["layers"], **options)(operands["acts"]).materialize()


def call_converged(acts=ACTS, **changed):
    return js.bounded.converged(**{"layers": [LAYER], **changed})(acts)


NUMBERS = "they take >= 0, >= 0 and >= 1"
SHARED = "images share results, so it has no derivative, and raises"


class TestConverged(OpSuite):
    spec = OpSpec(
        name="bounded.converged",
        serves=(js.bounded.converged,),
        draw=images,
        apply=converged,
        oracle=lambda operands: oracle(operands["acts"], *stack()[0]),
        floats=("acts",),
        sharded=frozenset({"acts"}),
        empty=lambda rng: images(rng, 1.0) | {"acts": np.zeros((0, INPUTS), np.float32)},
        call=call_converged,
        bad={
            "no layers": (
                {"layers": []},
                ValueError,
                "layers is empty: a network needs at least one",
            ),
            "one layer": ({"layers": LAYER}, TypeError, r"one Layer: write"),
            "acts list": ({"acts": [1.0]}, TypeError, "acts must be an array or Activations"),
            "acts rank": (
                {"acts": ACTS[0]},
                ValueError,
                r"acts has shape \(4,\); it needs \[batch",
            ),
            "acts width": (
                {"acts": ACTS[:, :3]},
                ValueError,
                "acts has 3 columns; layer 0 takes 4",
            ),
            "threshold sign": ({"threshold": -1}, ValueError, f"threshold=-1, .*{NUMBERS}"),
            "threshold type": (
                {"threshold": 1.5},
                TypeError,
                "threshold must be an int, not float",
            ),
            "tolerance": ({"tolerance": float("nan")}, ValueError, f"tolerance=nan, .*{NUMBERS}"),
            "centroids": ({"centroids": 0}, ValueError, f"centroids=0: {NUMBERS}"),
        },
        inapplicable={
            "split_by_a_mesh": "images that stand for others are looked for among all",
            "16_bits": FLOAT32,
            "gradient": SHARED,
            "gradient_of_16_bits": SHARED,
            "second_derivative": SHARED,
            "nothing_is_read_that_does_not_count": "every value of an image counts",
            "overflow_is_flagged_and_written_nowhere": NO_CAPACITY,
        },
    )
