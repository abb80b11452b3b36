"""An `nnx.Param` (any `nnx.Variable`) stands for the array that it holds, in every public op."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

import jaxsparse as js
from jaxsparse import ops
from jaxsparse.core.variables import unwrap

RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


X, KERNEL = normal(1, 6, 7, 4), normal(3, 3, 4, 4)
MASK = jnp.asarray(RNG.random((1, 6, 7)) < 0.4)
PLAN = js.pruned.inspect(np.asarray(normal(4, 5)) * (RNG.random((4, 5)) < 0.5))
CONV_PLAN = js.pruned.inspect(np.asarray(KERNEL), kind="conv")
LAYER = js.bounded.inspect(np.asarray(normal(4, 5)), -0.1, 2.0)
TOKENS = normal(6, 4)
IDS = jnp.asarray(RNG.integers(0, 3, (6, 2)), jnp.int32)

ROWS = normal(2, 5, 3)
COUNTED = js.lengths_mask(jnp.asarray([3, 4]), 5)
KEPT = js.kept_blocks(np.asarray([[1, 0], [0, 1], [1, 0]], bool), (6, 4), (2, 2), capacity=3)
ATTENDED = js.BlockMask.from_dense(RNG.random((1, 2, 20, 20)) < 0.5, 16)

#: Name -> (function, arguments, options): every array of both is given as a variable.
CASES = {
    "pack_mask": (js.pack_mask, (MASK,), {}),
    "unpack_mask": (js.unpack_mask, (js.pack_mask(MASK), 7), {}),
    "tile_index": (js.tile_index, (MASK, (2, 2)), {}),
    "affected_index": (js.affected_index, (MASK, [[(3, 1)]], (2, 2)), {}),
    "token_index": (js.token_index, (MASK,), {}),
    "pack_tokens": (js.pack_tokens, (ROWS, COUNTED), {}),
    "unpack_tokens": (js.unpack_tokens, js.pack_tokens(ROWS, COUNTED), {"base": ROWS}),
    "lengths_mask": (js.lengths_mask, (jnp.arange(3), 4), {}),
    "masked_conv": (
        js.masked_conv,
        (X, KERNEL, js.tile_index(MASK, (2, 2))),
        {"bias": normal(4), "base": normal(1, 6, 7, 4), "residual": normal(1, 6, 7, 4)},
    ),
    "masked_conv_stack": (
        js.masked_conv_stack,
        (X, [KERNEL, KERNEL], MASK, [X, X]),
        {"biases": [normal(4), None]},
    ),
    "masked_dense": (
        js.masked_dense,
        (TOKENS, normal(4, 5), jnp.arange(6) < 4),
        {"bias": normal(5), "base": normal(6, 5)},
    ),
    "masked_norm": (js.masked_norm, (X, MASK), {"scale": normal(4), "bias": normal(4)}),
    "masked_pool": (js.masked_pool, (X, MASK, (2, 2)), {}),
    "masked_matmul": (
        js.masked_matmul,
        (TOKENS, normal(4, 5)),
        {
            "a_mask": jnp.asarray(RNG.random((6, 4)) < 0.5),
            "b_mask": jnp.asarray(RNG.random((4, 5)) < 0.5),
            "out_mask": jnp.asarray(RNG.random((6, 5)) < 0.5),
        },
    ),
    "kept_matmul": (js.kept_matmul, (normal(3, 2, 2), KEPT, normal(4, 5)), {}),
    "grouped_matmul": (
        js.grouped_matmul,
        (TOKENS, normal(3, 4, 5), jnp.asarray([2, 3, 1])),
        {
            "gather": jnp.arange(6)[::-1],
            "scatter": jnp.asarray([0, 0, 1, 2, 2, 5]),
            "row_weights": normal(6),
        },
    ),
    "route": (js.route, (IDS, 3), {}),
    "sparse_attention": (
        js.sparse_attention,
        (*(normal(1, 20, 2, 4) for _ in range(3)), ATTENDED),
        {"bias": normal(1, 2, 20, 20), "slopes": normal(2)},
    ),
    "sparse_ffn": (js.sparse_ffn, (TOKENS, normal(4, 7), normal(7, 5)), {"w_gate": normal(4, 7)}),
    "pruned_matmul": (js.pruned_matmul, (TOKENS, PLAN), {"bias": normal(5)}),
    "pruned_conv": (js.pruned_conv, (X, CONV_PLAN), {"bias": normal(4)}),
    "bounded_matmul": (js.bounded_matmul, (TOKENS, LAYER), {}),
    "bounded.network": (lambda layers, x: js.bounded.network(layers)(x), ([LAYER], TOKENS), {}),
    "bounded.converged": (
        lambda layers, x: js.bounded.converged(layers)(x),
        ([LAYER], TOKENS),
        {},
    ),
    "bounded.inspect": (js.bounded.inspect, (normal(4, 5), normal(5), 2.0), {}),
    "bounded.categories": (js.bounded.categories, (TOKENS,), {}),
    "pruned.inspect": (js.pruned.inspect, (normal(4, 5),), {}),
    "prune.magnitude": (js.prune.magnitude, (normal(4, 5), 0.5), {}),
    "recorder.probe": (js.recorder.probe, (TOKENS, 2, 1.0), {}),
    "from_words": (js.TileIndex.from_words, (js.pack_mask(MASK), 7, (2, 2)), {}),
    "PrunedWeight.with_values": (PLAN.with_values, (PLAN.values * 2,), {}),
    "PrunedWeight.from_dense": (PLAN.from_dense, (normal(4, 5),), {}),
    "Layer.with_values": (LAYER.with_values, (LAYER.weights * 2, LAYER.bias + 1), {}),
    "show": (js.show, (MASK,), {}),
}


MESH = Mesh(np.asarray(jax.devices()[:1]), ("expert",))


def over_a_mesh(body):
    return jax.shard_map(body, mesh=MESH, in_specs=(), out_specs=PartitionSpec("expert"))()


def dispatched(x, ids):
    return over_a_mesh(lambda: js.dispatch(x, js.route(ids, 3), "expert")[0])


def combined(x, ids, weights):
    def body():
        rows, exchange = js.dispatch(x, js.route(ids, 3), "expert")
        rows = rows if isinstance(x, jax.Array) else nnx.Param(rows)
        return js.combine(rows, exchange, weights)

    return over_a_mesh(body)


def ringed(*args, **options):
    def body():
        return js.ring_attention(*args, "expert", **options)

    return over_a_mesh(body)


CASES["ring_attention"] = (ringed, *CASES["sparse_attention"][1:])
CASES["dispatch"] = (dispatched, (TOKENS, IDS), {})
CASES["combine"] = (combined, (TOKENS, IDS, jnp.ones(IDS.shape)), {})


def wrapped(tree):
    """`tree` with a Param in place of each array."""

    def wrap(leaf):
        return nnx.Param(jnp.asarray(leaf)) if hasattr(leaf, "dtype") else leaf

    return jax.tree.map(wrap, tree)


@pytest.mark.parametrize("name", CASES)
def test_a_param_is_taken(name):
    op, args, options = CASES[name]
    want = op(*args, **options)
    got = op(*wrapped(args), **wrapped(options))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert isinstance(a, (jax.Array, np.ndarray))
        np.testing.assert_array_equal(a, b)


def test_every_op_has_a_case():
    assert {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))} <= set(CASES)


def test_a_variable_of_a_whole_weight():
    np.testing.assert_array_equal(
        js.pruned_matmul(TOKENS, nnx.Param(PLAN)), js.pruned_matmul(TOKENS, PLAN)
    )
    np.testing.assert_array_equal(
        js.masked_conv(X, KERNEL, nnx.Variable(js.tile_index(MASK, (2, 2)))),
        js.masked_conv(X, KERNEL, MASK),
    )


def test_what_holds_no_variable_is_not_copied():
    for value in (X, None, "SAME", PLAN, [KERNEL], LAYER, {"a": (1, 1)}):
        assert unwrap(value) is value
    inner = dataclasses.replace(PLAN, values=nnx.Param(jnp.asarray(PLAN.values)))
    assert isinstance(unwrap(inner).values, jax.Array)


def test_the_gradient_of_params_in_a_module():
    class Model(nnx.Module):
        def __init__(self):
            self.kernel, self.bias = nnx.Param(KERNEL), nnx.Param(jnp.ones(4))

        def __call__(self, x):
            return js.masked_conv(x, self.kernel, MASK, bias=self.bias)

    def plain(kernel, bias):
        return jnp.sum(js.masked_conv(X, kernel, MASK, bias=bias) ** 2)

    found = nnx.jit(nnx.grad(lambda model: jnp.sum(model(X) ** 2)))(Model())
    want = jax.grad(plain, (0, 1))(KERNEL, jnp.ones(4))
    np.testing.assert_allclose(found["kernel"][...], want[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["bias"][...], want[1], rtol=1e-4, atol=1e-4)
