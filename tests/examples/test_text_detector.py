"""The text detector's reader and its frame-by-frame form, on a small graph of the same operators;
onnx's own evaluation is the oracle.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SIZE = 32


def stand_in(rng):
    """Strided, depthwise and 1x1 convolutions, a hard swish, squeeze-excite, a pyramid, a head."""
    constants, nodes = {}, []

    def constant(name, *shape):
        constants[name] = rng.standard_normal(shape).astype(np.float32) / 2
        return name

    def node(op, inputs, output, **static):
        nodes.append(helper.make_node(op, inputs, [output], **static))
        return output

    def conv(x, name, c, o, k=3, s=1, g=1):
        names = [x, constant(f"{name}.w", o, c // g, k, k), constant(f"{name}.b", o)]
        pads = [k // 2] * 4
        return node("Conv", names, name, strides=[s, s], pads=pads, group=g, kernel_shape=[k, k])

    constants |= {n: np.float32(v) for n, v in {"three": 3, "zero": 0, "six": 6}.items()}
    constants |= {"four": np.ones(4, np.float32), "sizes": np.float32([1, 1, 2, 2])}
    constants |= {"var": np.full(4, 0.5, np.float32), "none": np.zeros(0, np.float32)}
    stem = node(
        "BatchNormalization",
        [conv("x", "c0", 3, 4, s=2), "four", constant("s", 4), constant("m", 4), "var"],
        "n0",
    )
    deep = node("Mul", [conv(stem, "c1", 4, 4, g=4), constant("a", 1)], "m1")
    clip = node("Clip", [node("Add", [deep, "three"], "p1"), "zero", "six"], "k1")
    swish = node("Div", [node("Mul", [deep, clip], "q1"), "six"], "h1")
    low = conv(swish, "c2", 4, 4, k=1, s=2)
    pooled = node("GlobalAveragePool", [low], "g0")
    gate = node("HardSigmoid", [node("Relu", [conv(pooled, "c3", 4, 4, k=1)], "r3")], "g1")
    big = node(
        "Resize",
        [node("Mul", [low, gate], "e1"), "none", "sizes"],
        "u1",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    joined = node("Concat", [big, node("Add", [swish, big], "t1")], "j1", axis=1)
    head = node("Relu", [conv(joined, "c4", 8, 4)], "r4")
    up = node(
        "ConvTranspose",
        [head, constant("d.w", 4, 1, 2, 2)],
        "d",
        strides=[2, 2],
        kernel_shape=[2, 2],
    )
    node("Sigmoid", [node("Add", [up, constant("d.b", 1, 1, 1, 1)], "d1")], "y")
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, SIZE, SIZE])]
        for name, c in (("x", 3), ("y", 1))
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "stand-in", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])


def test_a_frame_equals_the_whole_network_with_the_factors_held(examples, rng):
    graphs = importlib.import_module("models.detector.graph")
    cached = importlib.import_module("models.detector.cached")
    model = stand_in(rng)
    whole = graphs.read(model)
    graph = graphs.fold(whole)
    assert len(graph.nodes) < len(whole.nodes)
    made, params = cached.plan(graph), graphs.params_of(graph)

    def unpack(frame):
        channels = jnp.stack([(frame >> shift) & 255 for shift in (0, 8, 16)], -1)
        return channels.astype(jnp.float32) / 255

    frame = rng.integers(0, 1 << 24, (1, SIZE, SIZE), np.uint32)
    oracle = ReferenceEvaluator(model)
    refresh = jax.jit(lambda frame: cached.refresh(made, params, frame, unpack, 0.0))
    state = refresh(frame)
    x = np.asarray(unpack(frame))
    want = oracle.run(None, {"x": x.transpose(0, 3, 1, 2)})[0]
    np.testing.assert_allclose(state.values["y"][..., 0], want[:, 0], atol=1e-5)

    step = jax.jit(lambda state, frame: cached.step(state, made, params, frame, unpack))
    again, masks = step(state, frame)
    assert not any(mask.any() for mask in masks.values())
    after = frame.copy()
    after[0, 4:8, 20:24] = 0xFFFFFF
    moved, masks = step(again, after)
    held = graph._replace(nodes=tuple(n for n in graph.nodes if n.output not in made.held))
    want = graphs.evaluate(held, params | state.held, unpack(after))["y"]
    np.testing.assert_allclose(moved.values["y"], want, atol=1e-5)
    far = np.abs(np.asarray(want - state.values["y"])).max()
    assert far > 1e-3  # the change is seen
    assert 0 < masks["y"].mean() < 0.5

    still = state._replace(thresholds={k: jnp.float32(1e9) for k in state.thresholds})
    kept, masks = step(still, after)  # what moves by less than the threshold is not passed on
    assert not masks["y"].any()
    np.testing.assert_array_equal(kept.values["y"], state.values["y"])


def test_an_operator_that_is_not_evaluated_is_named(examples):
    graphs = importlib.import_module("models.detector.graph")
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 4, 4])] for n in "xy"]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "erf", *ends)
    with pytest.raises(ValueError, match="operator Erf"):
        graphs.read(helper.make_model(graph))


def test_boxes_and_their_overlap(examples):
    screen = importlib.import_module("models.detector.screen")
    map_ = np.zeros((20, 30), np.float32)
    map_[2:6, 3:9], map_[10:14, 5:15], map_[17, 1:4] = 0.9, 0.8, 0.35
    found = screen.boxes(map_)
    np.testing.assert_array_equal(found, [(2, 3, 6, 9), (10, 5, 14, 15)])
    assert screen.overlap(found, found[:1]) == (1, 1.0)
    drawn = screen.Screen(120, 400)
    changed = drawn.frame() != drawn.next()
    assert 0 < changed.mean() < 0.6
    assert screen.normalised(drawn.frame()).shape == (1, 3, 120, 400)
