"""A graph as an ONNX model, in NCHW, and its evaluation by onnxruntime."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.pruned.graph import Graph, Node

OPSET, IR = 17, 8


def channels_first(x: np.ndarray) -> np.ndarray:
    """[B,H,W,C] as [B,C,H,W]; arrays of other ranks as they are."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x


class _Writer:
    """The ONNX nodes and constants of a graph, one node after the other."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.images: dict[str, tuple[int, ...]] = {}  # flattened image -> its height, width, ...

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def put(self, op: str, inputs: list[str], output: str, **static: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], **static))
        return output

    def activated(self, op: str, inputs: list[str], node: Node, **static: Any) -> None:
        """The operator, and the activation of the node behind it."""
        kind = node.static["activation"]
        before = node.output if kind is None else f"{node.output}.linear"
        self.put(op, inputs, before, **static)
        if kind == "relu":
            self.put("Relu", [before], node.output)
        elif kind == "silu":
            gate = self.put("Sigmoid", [before], f"{node.output}.gate")
            self.put("Mul", [before, gate], node.output)

    def write(self, node: Node) -> None:
        """One node of the graph."""
        static, inputs, out = node.static, list(node.inputs), node.output
        if node.op == "conv":
            layer = self.graph.layers[out]
            names = [self.constant(f"{out}.kernel", layer.kernel.transpose(3, 2, 0, 1).copy())]
            names.append(self.constant(f"{out}.bias", layer.bias))
            (top, bottom), (left, right) = static["padding"]
            rest = {"pads": [top, left, bottom, right], "strides": [static["stride"]] * 2}
            self.activated("Conv", inputs + names, node, group=static["groups"], **rest)
        elif node.op == "matmul":
            self.product(node)
        elif node.op == "add":
            self.activated("Add", inputs, node)
        elif node.op == "max_pool":
            pads = [pair[i] for i in (0, 1) for pair in static["padding"]]
            sides = {"kernel_shape": [static["window"]] * 2, "strides": [static["stride"]] * 2}
            self.put("MaxPool", inputs, out, pads=pads, **sides)
        elif node.op == "mean":
            wide = self.put("GlobalAveragePool", inputs, f"{out}.wide")
            self.put("Flatten", [wide], out)
        elif node.op == "flatten":
            self.images[out] = static["image"]
            self.put("Flatten", inputs, out)
        elif node.op == "concat":
            self.put("Concat", inputs, out, axis=1)
        elif node.op == "slice":
            ends = [static["start"]], [static["stop"]], [1]
            names = [
                self.constant(f"{out}.{i}", np.asarray(e, np.int64)) for i, e in enumerate(ends)
            ]
            self.put("Slice", inputs + names, out)
        elif node.op == "enlarge":
            sizes = self.constant(f"{out}.sizes", np.float32([1, 1, 2, 2]))
            form = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            self.put("Resize", [*inputs, "", sizes], out, mode="nearest", **form)
        elif node.op == "norm":
            self.put("LayerNormalization", inputs, out, axis=-1, epsilon=1e-5)
        else:
            self.attention(node)

    def product(self, node: Node) -> None:
        """A dense layer; the rows of its kernel follow the order of a flattened image."""
        layer, x, out = self.graph.layers[node.output], node.inputs[0], node.output
        kernel = layer.kernel
        if x in self.images:
            image = self.images[x]
            kernel = kernel.reshape(*image, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)
        names = [x, self.constant(f"{out}.kernel", kernel)]
        bias = self.constant(f"{out}.bias", layer.bias)
        self.put("MatMul", names, f"{out}.product")
        self.activated("Add", [f"{out}.product", bias], node)

    def attention(self, node: Node) -> None:
        """Softmax attention in heads."""
        out, heads = node.output, node.static["heads"]
        parts, cache = list(node.inputs[:3]), node.inputs[3:]
        for i, old in enumerate(cache, 1):
            parts[i] = self.put("Concat", [old, parts[i]], f"{out}.all_{i}", axis=1)
        split = self.constant(f"{out}.split", np.asarray([0, 0, heads, -1], np.int64))
        for i, order in enumerate(((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))):
            tall = self.put("Reshape", [parts[i], split], f"{out}.heads_{i}")
            parts[i] = self.put("Transpose", [tall], f"{out}.part_{i}", perm=order)
        scale = self.constant(f"{out}.scale", np.float32(64**-0.5))
        scaled = self.put("Mul", [parts[0], scale], f"{out}.scaled")
        scores = self.put("MatMul", [scaled, parts[1]], f"{out}.scores")
        shares = self.put("Softmax", [scores], f"{out}.shares", axis=-1)
        mixed = self.put("MatMul", [shares, parts[2]], f"{out}.mixed")
        turned = self.put("Transpose", [mixed], f"{out}.turned", perm=(0, 2, 1, 3))
        join = self.constant(f"{out}.join", np.asarray([0, 0, -1], np.int64))
        self.put("Reshape", [turned, join], out)


def export(graph: Graph, batch: int) -> onnx.ModelProto:
    """The model, float32; its inputs are those of `channels_first`."""
    writer = _Writer(graph)
    for name, value in graph.constants.items():
        writer.constant(name, value)
    for node in graph.nodes:
        writer.write(node)
    ends = []
    for name, shape in graph.inputs.items():
        turned = (shape[2], *shape[:2]) if len(shape) == 3 else shape
        ends.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *turned]))
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in graph.outputs]
    made = helper.make_graph(writer.nodes, graph.name, ends, results, writer.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def onnxruntime_call(
    graph: Graph, batch: int, inputs: Mapping[str, np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """A call of the model on all threads of this process, on the CPU.

    Raises:
        ImportError: onnxruntime is not installed.
    """
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = len(os.sched_getaffinity(0))
    model = export(graph, batch).SerializeToString()
    session = onnxruntime.InferenceSession(model, chosen, ["CPUExecutionProvider"])
    given = {name: channels_first(x) for name, x in inputs.items()}
    return lambda: session.run(None, given)
