"""An ONNX graph of a convolutional network as JAX: read, folded, and evaluated in NHWC.

The operators are those of image networks: convolutions, transposed ones whose windows do not
overlap, batch normalisation, elementwise arithmetic, global pooling, nearest enlargement,
concatenation. Another operator, or another form of one, raises an error that names it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import numpy_helper

OPS = (
    *("Conv", "ConvTranspose", "BatchNormalization", "Add", "Mul", "Div", "Clip", "Relu"),
    *("Sigmoid", "HardSigmoid", "GlobalAveragePool", "Resize", "Concat"),
)
Values = dict[str, jax.Array]


class Node(NamedTuple):
    """One operator: names of its operands, name of its result, and what is static."""

    op: str
    inputs: tuple[str, ...]
    output: str
    static: dict[str, Any]


class Graph(NamedTuple):
    """Nodes in an order of evaluation, the constants they read, and the ends.

    A kernel is f32[kh,kw,C/groups,O]; a constant of a channel is f32[C].
    """

    nodes: tuple[Node, ...]
    constants: dict[str, np.ndarray]
    input: str
    output: str


def read(model: onnx.ModelProto) -> Graph:
    """The graph of a model with one input f32[B,C,H,W] and one output, as NHWC.

    Raises:
        ValueError: an operator, or a form of one, that is not evaluated here, naming it.
    """
    graph = model.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes: list[Node] = []
    for node in graph.node:
        static = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(static["value"])
            continue
        if node.op_type not in OPS:
            raise ValueError(f"operator {node.op_type}: the graph may hold {', '.join(OPS)}")
        nodes += _normalised(
            Node(node.op_type, tuple(node.input), node.output[0], static), constants
        )
    return Graph(tuple(nodes), constants, graph.input[0].name, graph.output[0].name)


def _normalised(node: Node, constants: dict[str, np.ndarray]) -> list[Node]:
    """The node in NHWC, its constants laid out anew; a transposed convolution becomes two."""
    op, inputs, output, static = node
    for name in inputs:  # a constant of channels [1, C, 1, 1]
        if name in constants and op in ("Add", "Mul", "Div"):
            value = constants[name]
            if value.size not in (1, max(value.shape, default=1)):
                raise ValueError(f"{op} {output}: constant {name} has shape {value.shape}")
            constants[name] = value.reshape(-1) if value.size > 1 else value.reshape(())
    if op in ("Conv", "ConvTranspose"):
        return _convolutions(node, constants)
    if op == "BatchNormalization":
        scale, shift, mean, variance = (constants[name] for name in inputs[1:5])
        factor = scale / np.sqrt(variance + static.get("epsilon", 1e-5))
        names = f"{output}.factor", f"{output}.shift"
        constants |= {names[0]: factor, names[1]: shift - mean * factor}
        scaled = f"{output}.scaled"
        return [
            Node("Mul", (inputs[0], names[0]), scaled, {}),
            Node("Add", (scaled, names[1]), output, {}),
        ]
    if op == "Clip":
        least, most = (float(constants[name]) for name in inputs[1:3])
        return [Node("Clip", inputs[:1], output, {"least": least, "most": most})]
    if op == "HardSigmoid":
        static = {"alpha": static.get("alpha", 0.2), "beta": static.get("beta", 0.5)}
        return [Node(op, inputs, output, static)]
    if op == "Resize":
        factors = constants[inputs[2]].tolist()
        form = static.get("coordinate_transformation_mode"), static.get("nearest_mode")
        whole = len(factors) == 4 and factors[:2] == [1, 1] and factors[2] == factors[3]
        if static.get("mode") != b"nearest" or form != (b"asymmetric", b"floor") or not whole:
            raise ValueError(f"Resize {output}: nearest, by one whole factor, is what is evaluated")
        return [Node("Resize", inputs[:1], output, {"factor": int(factors[2])})]
    if op == "Concat" and static["axis"] != 1:
        raise ValueError(f"Concat {output}: axis={static['axis']}; channels are axis 1")
    return [Node(op, inputs, output, {})]


def _convolutions(node: Node, constants: dict[str, np.ndarray]) -> list[Node]:
    op, inputs, output, static = node
    kernel = constants[inputs[1]]
    groups, window = static.get("group", 1), kernel.shape[2:]
    strides = tuple(static.get("strides", (1, 1)))
    top, left, bottom, right = static.get("pads", (0, 0, 0, 0))
    names = f"{output}.kernel", f"{output}.bias"
    outputs = kernel.shape[0] if op == "Conv" else kernel.shape[1]
    bias = constants[inputs[2]] if len(inputs) > 2 else np.zeros(outputs, np.float32)
    if op == "Conv":
        constants |= {names[0]: kernel.transpose(2, 3, 1, 0), names[1]: bias}
        rest = {"strides": strides, "padding": ((top, bottom), (left, right)), "groups": groups}
        rest["dilation"] = tuple(static.get("dilations", (1, 1)))
        return [Node("Conv", (inputs[0], *names), output, rest)]
    if strides != window or strides[0] != strides[1] or groups != 1 or top or left:
        raise ValueError(
            f"ConvTranspose {output}: window {window}, strides {strides}; equal ones are needed"
        )
    factor = window[0]  # every pixel becomes a block of its own: a product, then a rearrangement
    wide = kernel.transpose(0, 2, 3, 1).reshape(1, 1, len(kernel), -1)
    constants |= {names[0]: wide, names[1]: np.tile(bias, factor * factor)}
    rest = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1, "dilation": (1, 1)}
    blocks = f"{output}.blocks"
    return [
        Node("Conv", (inputs[0], *names), blocks, rest),
        Node("Shuffle", (blocks,), output, {"factor": factor}),
    ]


def fold(graph: Graph) -> Graph:
    """The graph with what scales or shifts the channels of a convolution's result taken into it."""
    uses = Counter(name for node in graph.nodes for name in node.inputs)
    constants, nodes = dict(graph.constants), []
    made: dict[str, int] = {}  # result -> where its convolution is in nodes
    for node in graph.nodes:
        given = [name for name in node.inputs if name not in constants]
        fixed = [name for name in node.inputs if name in constants]
        at = made.get(given[0]) if len(given) == 1 else None
        if node.op in ("Mul", "Add") and len(fixed) == 1 and at is not None and uses[given[0]] == 1:
            conv = nodes[at]
            _, kernel, bias = conv.inputs
            value = constants[fixed[0]].astype(np.float32)
            if node.op == "Mul":
                constants |= {kernel: constants[kernel] * value, bias: constants[bias] * value}
            else:
                constants[bias] = constants[bias] + value
            nodes[at] = conv._replace(output=node.output)
            made[node.output] = at
            continue
        if node.op == "Conv":
            made[node.output] = len(nodes)
        nodes.append(node)
    used = {name for node in nodes for name in node.inputs}
    return graph._replace(
        nodes=tuple(nodes), constants={k: v for k, v in constants.items() if k in used}
    )


def params_of(graph: Graph) -> Values:
    """The constants as float32 arrays of JAX."""
    return {name: jnp.asarray(value, jnp.float32) for name, value in graph.constants.items()}


def xla_conv(node: Node, x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """The convolution of a node through XLA."""
    static = node.static
    y = lax.conv_general_dilated(
        x,
        kernel,
        static["strides"],
        static["padding"],
        rhs_dilation=static["dilation"],
        feature_group_count=static["groups"],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y + bias


def apply(node: Node, args: list[jax.Array]) -> jax.Array:
    """The result of a node that is not a convolution; operands are [B,H,W,C], [C] or scalars."""
    x, static = args[0], node.static
    if node.op in ("Resize", "Shuffle"):
        return enlarge(node, x)
    if node.op == "Concat":
        return jnp.concatenate(args, -1)
    if node.op == "GlobalAveragePool":
        return x.mean((1, 2), keepdims=True)
    if node.op == "Clip":
        return jnp.clip(x, static["least"], static["most"])
    if node.op == "HardSigmoid":
        return jnp.clip(static["alpha"] * x + static["beta"], 0, 1)
    if node.op in ("Relu", "Sigmoid"):
        return jax.nn.relu(x) if node.op == "Relu" else jax.nn.sigmoid(x)
    pairs = {"Add": jnp.add, "Mul": jnp.multiply, "Div": jnp.divide}
    return pairs[node.op](*args)


def enlarge(node: Node, x: jax.Array) -> jax.Array:
    """Each pixel of [B,H,W,C] repeated, or its channels spread over a block of pixels."""
    factor = node.static["factor"]
    if node.op == "Resize":
        return x.repeat(factor, 1).repeat(factor, 2)
    b, h, w, c = x.shape
    blocks = x.reshape(b, h, w, factor, factor, c // factor**2).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(b, h * factor, w * factor, -1)


def evaluate(
    graph: Graph,
    params: Mapping[str, jax.Array],
    x: jax.Array,
    conv: Callable[..., jax.Array] = xla_conv,
) -> Values:
    """Every result of the graph by name, on x f32[B,H,W,C]; `conv(node, x, kernel, bias)`."""
    values: Values = {graph.input: x}
    for node in graph.nodes:
        args = [values[name] if name in values else params[name] for name in node.inputs]
        values[node.output] = conv(node, *args) if node.op == "Conv" else apply(node, args)
    return values
