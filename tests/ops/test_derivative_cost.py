"""What a derivative runs and saves: the calls of kernels in a gradient and in a jvp, and the bytes
between the forward and the backward pass.
"""

import collections
import functools
import re
from typing import Any

import jax
import pytest
from ops.op_report import suites
from ops.op_spec import float_leaves, loss_of, placed, split, weights_for

from jaxsparse.ffi.platform import offered_by

ON_CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="counts the calls of the CPU")
SPECS = {
    suite.spec.name: suite.spec
    for suite in suites()
    if suite.spec.differentiable and "cpu" in offered_by(suite.spec.serves[0].__name__)
}
TARGET = re.compile(r'custom_call_target="jaxsparse_(\w+)"')
LISTS = {"mask_index", "reach_index", "pack_mask", "unpack_mask"}
#: spec -> calls of a call, of its gradient for all operands, and the bytes that this saves.
COSTS = {
    "bounded_matmul": ({"bounded_matmul": 1}, {"bounded_matmul": 1}, 3788),
    "bounded.network": ({"bounded_network": 1}, {"bounded_network": 1}, 7912),
    "grouped_gated": (
        {"grouped_matmul": 2},
        {"grouped_matmul": 4, "grouped_matmul_drhs": 2},
        28360,
    ),
    "grouped_matmul": (
        {"grouped_matmul": 1},
        {"grouped_matmul": 3, "grouped_matmul_drhs": 1},
        7288,
    ),
    "ragged_dot": (
        {"grouped_matmul": 1},
        {"grouped_matmul": 2, "grouped_matmul_drhs": 1},
        8080,
    ),
    "masked_conv": ({"masked_conv": 1}, {"masked_conv": 2, "masked_conv_dkernel": 1}, 34171),
    "masked_conv, fused": ({"masked_conv": 1}, {"masked_conv": 2, "masked_conv_dkernel": 1}, 62395),
    # A call for each of two widths of two axes of channels; one of them runs.
    "masked_conv, channels": (
        {"masked_conv": 4},
        {"masked_conv": 8, "masked_conv_dkernel": 4},
        30000,
    ),
    "masked_conv_stack": ({"masked_conv": 2}, {"masked_conv": 4, "masked_conv_dkernel": 2}, 156737),
    "masked_dense": ({"masked_conv": 1}, {"masked_conv": 2, "masked_conv_dkernel": 1}, 6473),
    "masked_matmul": ({"masked_matmul": 1}, {"masked_matmul": 3}, 3891),
    "kept_matmul": ({"masked_matmul": 1}, {"masked_matmul": 3}, 6000),
    "pruned_conv": ({"pruned_conv": 1}, {"pruned_conv": 2}, 9096),
    "pruned_conv of a depthwise kernel": ({"pruned_conv": 1}, {"pruned_conv": 2}, 18000),
    "nn.pruned_conv_general_dilated": ({"pruned_conv": 1}, {"pruned_conv": 2}, 6216),
    "pruned_matmul": ({"pruned_matmul": 1}, {"pruned_matmul": 2}, 3640),
    "nn.pruned_dot_general": ({"pruned_matmul": 1}, {"pruned_matmul": 2}, 2560),
    "sparse_attention": (
        {"sparse_attention": 1},
        {"sparse_attention": 1, "sparse_attention_grad": 1},
        84112,
    ),
    "nn.sparse_attention_fn": (
        {"sparse_attention": 1},
        {"sparse_attention": 1, "sparse_attention_grad": 1},
        84096,
    ),
    # Two devices, and so two steps; what is saved is that of both.
    "ring_attention": (
        {"block_lists": 1, "sparse_attention": 2},
        {"block_lists": 1, "sparse_attention": 2, "sparse_attention_grad": 2},
        180000,
    ),
    "sparse_ffn": (
        {"sparse_ffn": 1},
        {"sparse_ffn_product": 6},
        20000,
    ),
    "sparse_ffn, transposed_up": ({"sparse_ffn": 1}, {"sparse_ffn_product": 6}, 20000),
    "sparse_ffn, many tokens": (
        {"sparse_ffn_product": 1},
        {"sparse_ffn_product": 4},
        30000,
    ),
    "top_experts": ({"top_experts": 1}, {"top_experts": 1}, 490),
    "pack_tokens": ({}, {}, 700),  # XLA moves the rows
}
#: spec -> operand -> calls that its tangent alone adds to those of a call.
TANGENTS = {
    "bounded_matmul": {"x": 0, "weights": 0, "bias": 0},
    "bounded.network": {"x": 0, "weights": 0, "bias": 0},
    "grouped_gated": {"lhs": 2, "gate": 1, "up": 1},
    "grouped_matmul": {"lhs": 1, "rhs": 1, "row_weights": 1},
    "ragged_dot": {"lhs": 1, "rhs": 1},
    "masked_conv": {"x": 1, "kernel": 1},
    "masked_conv, fused": {"x": 1, "kernel": 1, "bias": 0, "base": 0, "residual": 0},
    # The masks are constants here: XLA keeps one of the four.
    "masked_conv, channels": {"x": 1 - 3, "kernel": 1 - 3, "base": 0 - 3},
    "masked_conv_stack": {"x": 2, "kernels": 3, "bases": 1, "biases": 1},
    "masked_dense": {"x": 1, "w": 1, "bias": 0, "base": 0},
    "masked_matmul": {"a": 1, "b": 1},
    "kept_matmul": {"values": 1, "b": 1},
    "pruned_conv": {"x": 1, "kernel": 1, "bias": 0},
    "pruned_conv of a depthwise kernel": {"x": 1, "kernel": 1, "bias": 0},
    "nn.pruned_conv_general_dilated": {"x": 1, "kernel": 1},
    "pruned_matmul": {"x": 1, "w": 1, "bias": 0},
    "nn.pruned_dot_general": {"x": 1, "w": 1},
    "sparse_attention": {"q": 0, "k": 0, "v": 0},  # in jnp
    "nn.sparse_attention_fn": {"q": 0, "k": 0, "v": 0},
    "ring_attention": {"q": 0, "k": 0, "v": 0},
    # In jnp. Where w_down alone moves, h is a constant, and XLA folds the choice: dense.
    "sparse_ffn": {"x": 0, "w_gate": 0, "w_up": 0, "w_down": -1},
    "sparse_ffn, transposed_up": {"x": 0, "w_gate": 0, "w_up": 0, "w_down": -1},
    "sparse_ffn, many tokens": {"x": 0, "w_up": 0, "w_down": -1},
    "top_experts": {"logits": 0},
    "pack_tokens": {"x": 0, "base": 0},
}


def calls(function: Any, *args: Any) -> dict[str, int]:
    """handler -> its calls in the compiled function, but for those that list and pack masks."""
    text = jax.jit(function).lower(*args).compile().as_text()
    found = collections.Counter(TARGET.findall(text))
    return {name: n for name, n in found.items() if name not in LISTS}


@ON_CPU
@pytest.mark.parametrize("name", SPECS)
def test_reverse_mode_runs_and_saves_no_more(name, rng):
    spec = SPECS[name]
    operands = spec.draw(rng, 0.4)
    weights = weights_for(spec, operands, rng)
    floats, rest = split(spec, placed(spec, operands))
    once, in_gradient, most_bytes = COSTS[name]
    assert calls(lambda f, r: spec.apply({**r, **f}, "cpu"), floats, rest) == once
    slope = jax.grad(lambda f, r: loss_of(spec, "cpu")(f, r, weights)[0])
    assert calls(slope, floats, rest) == in_gradient
    _, back = jax.vjp(lambda f: spec.apply({**rest, **f}, "cpu"), floats)
    assert sum(v.nbytes for v in jax.tree.leaves(back) if isinstance(v, jax.Array)) <= most_bytes


@ON_CPU
@pytest.mark.parametrize("name", SPECS)
def test_a_zero_tangent_costs_no_product(name, rng):
    """The tangent of one operand costs one product, and that of a summand none."""
    spec = SPECS[name]
    floats, rest = split(spec, placed(spec, spec.draw(rng, 0.4)))
    once = sum(COSTS[name][0].values())

    def alone(value: Any, tangent: Any, operand: str) -> Any:
        run = lambda v: float_leaves(spec.apply({**rest, **floats, operand: v}, "cpu"))  # noqa: E731
        return jax.jvp(run, (value,), (tangent,))

    for operand, value in floats.items():
        found = calls(functools.partial(alone, operand=operand), value, value)
        assert sum(found.values()) == once + TANGENTS[name][operand], operand
