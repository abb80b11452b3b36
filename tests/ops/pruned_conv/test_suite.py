"""pruned_conv in the op suite, and the `conv_general_dilated` for flax that calls it."""

import contextlib
import functools

import numpy as np
from ops.masked_conv.oracle import masked_conv as oracle
from ops.op_sharding import Split
from ops.op_spec import Fixed
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

IMAGE, OUTPUTS = (2, 6, 9, 8), 12
KERNEL = (3, 3, IMAGE[3], OUTPUTS)
NO_CAPACITY = "a plan has room for every kept weight"


@functools.cache
def plan(fill):
    """A plan that keeps `fill` of the weights: static, so one object for each pattern."""
    rng = np.random.default_rng(7)
    return Fixed(js.pruned.inspect((rng.random(KERNEL) < fill).astype(np.float32), kind="conv"))


def draw(rng, fill):
    return {
        "x": rng.standard_normal(IMAGE, np.float32),
        "kernel": rng.standard_normal(KERNEL, np.float32) / np.float32((9 * IMAGE[3]) ** 0.5),
        "bias": rng.standard_normal(OUTPUTS, np.float32),
        "plan": plan(fill),
    }


def kept(operands):
    return np.asarray(operands["plan"].value.to_dense()) != 0


def forced(implementation):
    """The sparse executor, whatever the estimate says."""
    sparse = {"cpu": "strips", "cuda": "windows"}.get(implementation)
    return js.config(variant=sparse) if sparse else contextlib.nullcontext()


def apply(operands, implementation):
    pruned = operands["plan"].value.from_dense(operands["kernel"])
    options = {"activation": "silu", "strides": (1, 2), "implementation": implementation}
    with forced(implementation):
        return js.pruned_conv(operands["x"], pruned, bias=operands["bias"], **options)


def want(operands, activation="silu"):
    kernel = np.where(kept(operands), operands["kernel"], 0)
    everywhere = np.ones((operands["x"].shape[0], 6, 5), bool)
    options = {"strides": (1, 2), "bias": operands.get("bias"), "activation": activation}
    return oracle(operands["x"], kernel, everywhere, **options)


X = np.ones((1, 5, 6, 4), np.float32)
PRUNED = js.pruned.inspect(np.ones((3, 3, 4, 8), np.float32), kind="conv")
MATMUL = js.pruned.inspect(np.eye(4, 5, dtype=np.float32))


def call(**changed):
    return js.pruned_conv(**{"x": X, "pruned": PRUNED, **changed})


BAD = {
    "stride huge": ({"strides": 2**31}, ValueError, r"strides=\(2147483648, .* 1073741824"),
    "weight": (
        {"pruned": np.eye(4)},
        TypeError,
        "pruned must be a PrunedWeight, not .* js.pruned.inspect",
    ),
    "kind": ({"pruned": MATMUL}, ValueError, "pruned is a plan for kind='matmul'; .* takes 'conv'"),
    "x rank": ({"x": X[0]}, ValueError, r"x has shape \(5, 6, 4\); it needs 4 axes"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array, not list"),
    "x int": ({"x": X.astype(int)}, TypeError, "x has dtype int32; it takes float32, bfloat16 or"),
    "x dtype": (
        {"x": X.astype(np.float16)},
        TypeError,
        "pruned has dtype float32, x has float16: they must be equal",
    ),
    "channels": ({"x": X[..., :3]}, ValueError, "x has 3 channels in layout='NHWC' .* needs 4"),
    "channels first": (
        {"layout": "NCHW"},
        ValueError,
        "5 channels in layout='NCHW' .* needs 4",
    ),
    "layout": ({"layout": "CHWN"}, ValueError, "layout='CHWN' is not one of NHWC, NCHW"),
    "strides": ({"strides": 0}, ValueError, "strides=.*: each must be at least 1"),
    "dilation": ({"dilation": (1, 2, 3)}, TypeError, "dilation takes an int or two ints"),
    "padding": ({"padding": "FULL"}, ValueError, "padding='FULL'.*SAME"),
    "bias shape": (
        {"bias": np.zeros(3, np.float32)},
        ValueError,
        r"bias has shape \(3,\); the plan has 8 outputs",
    ),
    "activation": (
        {"activation": "tan"},
        ValueError,
        "activation='tan' is not one of None",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
}


class TestPrunedConv(OpSuite):
    spec = OpSpec(
        name="pruned_conv",
        serves=(js.pruned_conv,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "kernel", "bias"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        empty=lambda rng: {k: v[:0] if k == "x" else v for k, v in draw(rng, 0.4).items()},
        unread=lambda operands: {"kernel": ~kept(operands)},
        call=call,
        bad=BAD,
        fills=(0.4, 0.4),  # a pattern is static: one trace serves its values
        inapplicable={"overflow_is_flagged_and_written_nowhere": NO_CAPACITY},
    )


CHANNELS = 20
DEPTHWISE = (3, 3, 1, CHANNELS)


@functools.cache
def depthwise_plan(fill):
    """As `plan`, of a depthwise kernel."""
    kept = np.random.default_rng(7).random(DEPTHWISE) < fill
    return Fixed(js.pruned.inspect(kept.astype(np.float32), kind="conv", groups=CHANNELS))


def draw_depthwise(rng, fill):
    return {
        "x": rng.standard_normal((2, 6, 9, CHANNELS), np.float32),
        "kernel": rng.standard_normal(DEPTHWISE, np.float32) / np.float32(3),
        "bias": rng.standard_normal(CHANNELS, np.float32),
        "plan": depthwise_plan(fill),
    }


def apply_depthwise(operands, implementation):
    """By the CPU's executor of depthwise kernels."""
    pruned = operands["plan"].value.from_dense(operands["kernel"])
    options = {"activation": "gelu", "implementation": implementation}
    name = {"cpu": "depthwise", "cuda": "windows"}.get(implementation)
    with js.config(variant=name) if name else contextlib.nullcontext():
        return js.pruned_conv(operands["x"], pruned, bias=operands["bias"], **options)


def want_depthwise(operands):
    kernel = np.where(kept(operands), operands["kernel"], 0)
    everywhere = np.ones(operands["x"].shape[:3], bool)
    options = {"bias": operands["bias"], "activation": "gelu", "groups": CHANNELS}
    return oracle(operands["x"], kernel, everywhere, **options)


class TestDepthwiseConv(OpSuite):
    spec = OpSpec(
        name="pruned_conv of a depthwise kernel",
        serves=(js.pruned_conv,),
        draw=draw_depthwise,
        apply=apply_depthwise,
        oracle=want_depthwise,
        floats=("x", "kernel", "bias"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        empty=lambda rng: {
            k: v[:0] if k == "x" else v for k, v in draw_depthwise(rng, 0.4).items()
        },
        unread=lambda operands: {"kernel": ~kept(operands)},
        call=call,
        bad=BAD,
        fills=(0.7, 0.7),
        inapplicable={"overflow_is_flagged_and_written_nowhere": NO_CAPACITY},
    )


HOW = {"window_strides": (1, 2), "padding": "SAME"}
NUMBERS = ("NHWC", "HWIO", "NHWC")


def as_conv_general_dilated(operands, implementation):
    convolve = js.nn.pruned_conv_general_dilated(
        operands["plan"].value, from_kernel=True, implementation=implementation
    )
    with forced(implementation):
        return convolve(operands["x"], operands["kernel"], **HOW, dimension_numbers=NUMBERS)


def call_conv_general_dilated(pruned=PRUNED, implementation=None, **changed):
    convolve = js.nn.pruned_conv_general_dilated(pruned, implementation=implementation)
    good = {"lhs": X, "rhs": np.zeros((3, 3, 4, 8), np.float32), "dimension_numbers": NUMBERS}
    return convolve(**{**good, **HOW, **changed})


def without_bias(rng, fill):
    return {k: v for k, v in draw(rng, fill).items() if k != "bias"}


SAME = "the function that it returns calls js.pruned_conv, whose suite checks this"


class TestPrunedConvGeneralDilated(OpSuite):
    spec = OpSpec(
        name="nn.pruned_conv_general_dilated",
        serves=(js.nn.pruned_conv_general_dilated,),
        draw=without_bias,
        apply=as_conv_general_dilated,
        oracle=lambda operands: want(operands, None),
        floats=("x", "kernel"),
        sharded=frozenset({"x"}),
        split=Split({"x": 0}),
        unread=lambda operands: {"kernel": ~kept(operands)},
        call=call_conv_general_dilated,
        bad={
            "weight": ({"pruned": np.eye(4)}, TypeError, "pruned must be a PrunedWeight"),
            "kind": ({"pruned": MATMUL}, ValueError, "pruned is a plan .* this op takes 'conv'"),
            "lhs int": ({"lhs": X.astype(int)}, TypeError, "lhs has dtype int.*; it takes float32"),
        },
        fills=(0.4, 0.4),
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": NO_CAPACITY,
            "no_elements": SAME,
            "second_derivative": SAME,
            "vmap_over_nothing": SAME,
            "scan_and_remat": SAME,
            "shard_map": SAME,
            "bitwise_repeat": SAME,
        },
    )
