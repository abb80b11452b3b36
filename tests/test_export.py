"""The package's pytrees as arguments and results of an exported function: written, read, called."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax import export

import jaxsparse as js
from jaxsparse.export import read_plan, write_plan


def round_trip(function, *args):
    """`function` exported, written, read and called."""
    exported = export.export(jax.jit(function), disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(*args)
    return export.deserialize(exported.serialize()).call(*args)


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), atol=1e-5)


@pytest.mark.parametrize("align", ["grid", "component"])
def test_an_index(rng, align):
    mask = jnp.asarray(rng.random((2, 12, 20)) < 0.2)
    x = jnp.asarray(rng.standard_normal((2, 12, 20, 8)), jnp.float32)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 8)), jnp.float32)

    def listed(mask):
        return js.tile_index(mask, (4, 4), ordered=True, align=align)

    index = round_trip(listed, mask)
    assert_same(index, listed(mask))
    assert (index.tile, index.shape, index.align) == ((4, 4), mask.shape, align)
    assert_same(round_trip(js.masked_conv, x, kernel, index), js.masked_conv(x, kernel, index))


def test_a_block_mask(rng):
    dense = jnp.asarray(rng.random((2, 1, 40, 50)) < 0.4)
    mask = round_trip(lambda m: js.BlockMask.from_dense(m, (16, 32)), dense)
    assert (mask.block_size, mask.q_len, mask.kv_len) == ((16, 32), 40, 50)
    assert_same(round_trip(lambda m: m.to_dense(), mask), dense)
    assert_same(round_trip(lambda m: m.to_lists(), mask), mask.to_lists())


def test_an_index_that_was_chosen(rng):
    mask = jnp.asarray(rng.random((2, 12, 20)) < 0.2)
    assert_same(round_trip(js.tile_index, mask), js.tile_index(mask))


def test_a_layer_a_network_and_activations(rng):
    weights = [rng.standard_normal((12, 12)).astype(np.float32) for _ in range(3)]
    layers = [js.bounded.inspect(w, -0.1, 2.0) for w in weights]
    layers.append(js.bounded.inspect(np.repeat(weights[0], 2, 1), 0.0, 2.0))  # it folds
    x = jnp.asarray(rng.random((5, 12)), jnp.float32)
    for layer in layers:
        acts = round_trip(js.bounded_matmul, x, layer)
        want = js.bounded_matmul(x, layer)
        assert isinstance(acts, js.bounded.Activations)
        assert_same(acts.materialize(), want.materialize())
        assert_same(acts.recorder, want.recorder)
    second = round_trip(js.bounded_matmul, js.bounded_matmul(x, layers[0]), layers[1])
    net = js.bounded.network(layers[:2])
    assert_same(second.materialize(), net(x).materialize())
    got = round_trip(lambda net, x: net(x).materialize(), net, x)
    assert_same(got, net(x).materialize())


@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_a_pruned_weight(rng, kind):
    shape = (24, 40) if kind == "matmul" else (3, 3, 8, 16)
    weight = np.where(rng.random(shape) < 0.1, rng.standard_normal(shape), 0).astype(np.float32)
    pruned = js.pruned.inspect(weight, kind=kind)
    size = (6, 24) if kind == "matmul" else (2, 7, 9, 8)
    x = jnp.asarray(rng.standard_normal(size), jnp.float32)
    op = js.pruned_matmul if kind == "matmul" else js.pruned_conv
    assert_same(round_trip(op, x, pruned), op(x, pruned))
    doubled = round_trip(lambda p: p.with_values(p.values * 2), pruned)
    assert doubled.plan == pruned.plan
    np.testing.assert_allclose(doubled.to_dense(), 2 * weight)


def test_a_routing(rng):
    ids = jnp.asarray(rng.integers(0, 5, (9, 2)), jnp.int32)

    def routed(ids):
        return js.route(ids, 5)

    routing = round_trip(routed, ids)
    assert_same(routing, routed(ids))
    rhs = jnp.asarray(rng.standard_normal((5, 8, 4)), jnp.float32)
    x = jnp.asarray(rng.standard_normal((9, 8)), jnp.float32)

    def product(x, rhs, routing):
        return js.grouped_matmul(x, rhs, routing.group_sizes, gather=routing.gather)

    assert_same(round_trip(product, x, rhs, routing), product(x, rhs, routing))


def test_damaged_facts_are_refused():
    pruned = js.pruned.inspect(np.eye(6, dtype=np.float32))
    data = write_plan((pruned.plan,))
    assert read_plan(data) == (pruned.plan,)
    facts = msgspec.msgpack.decode(data)
    for change in (
        {"kind": "sum"},
        {"groups": 2},
        {"window": (1, 1)},
        {"indices": facts["indices"][:-4]},
        {"indices": np.full(6, 6, "<i4").tobytes()},
        {"n_in": -1},
        {"code": b"ret"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011  (each has words of its own)
            read_plan(msgspec.msgpack.encode(facts | change))
    with pytest.raises(ValueError, match="not the plan"):
        read_plan(data[:-1])
