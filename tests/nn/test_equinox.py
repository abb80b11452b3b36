"""Modules of equinox that hold the package's pytrees: filtered transforms, and leaves on disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

eqx = pytest.importorskip("equinox")

RNG = np.random.default_rng(0)
#: On a GPU variants round to TF32.
LIMIT = 1e-4 if jax.default_backend() == "cpu" else 2e-2
X = jnp.asarray(RNG.standard_normal((2, 9, 11, 4)), jnp.float32)
MASK = jnp.asarray(RNG.random((2, 9, 11)) < 0.4)
WEIGHT = np.where(RNG.random((6, 3)) < 0.5, RNG.standard_normal((6, 3)), 0).astype(np.float32)


class Model(eqx.Module):
    kernel: jax.Array
    index: js.TileIndex
    head: js.PrunedWeight
    activation: str = eqx.field(static=True)

    def __init__(self, mask, activation="relu"):
        self.kernel = jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 4, 6)), "f4")
        self.index = js.tile_index(mask, (2, 2))
        self.head = js.pruned.inspect(WEIGHT)
        self.activation = activation

    def __call__(self, x):
        y = js.masked_conv(x, self.kernel, self.index, activation=self.activation)
        return js.pruned_matmul(y.mean((1, 2)), self.head)


def loss(model, x):
    return (model(x) ** 2).sum()


def test_filter_jit():
    calls = []

    @eqx.filter_jit
    def run(model, x):
        calls.append(1)
        return model(x)

    for mask in (MASK, ~MASK):
        model = Model(mask)
        np.testing.assert_allclose(run(model, X), model(X), rtol=LIMIT, atol=LIMIT)
    assert len(calls) == 1  # a mask is data
    run(Model(MASK, "relu6"), X)
    assert len(calls) == 2


def test_filter_grad():
    """Of floating arrays: the kernel and the kept values; ids and words have none."""
    model = Model(MASK)
    found = eqx.filter_jit(eqx.filter_grad(loss))(model, X)
    assert found.index.ids is None
    assert found.index.words is None
    assert found.head.plan == model.head.plan

    def plain(kernel, values):
        y = js.masked_conv(X, kernel, MASK, activation="relu").mean((1, 2))
        return (js.pruned_matmul(y, model.head.with_values(values)) ** 2).sum()

    want = jax.grad(plain, (0, 1))(model.kernel, jnp.asarray(model.head.values))
    np.testing.assert_allclose(found.kernel, want[0], rtol=LIMIT, atol=LIMIT)
    np.testing.assert_allclose(found.head.values, want[1], rtol=LIMIT, atol=LIMIT)


def test_a_step_of_training():
    model = Model(MASK)

    @eqx.filter_jit
    def step(model):
        value, slope = eqx.filter_value_and_grad(loss)(model, X)
        return value, eqx.apply_updates(model, jax.tree.map(lambda g: -0.01 * g, slope))

    first, model = step(model)
    second, model = step(model)
    assert second < first
    assert isinstance(model.index, js.TileIndex)
    np.testing.assert_array_equal(model.index.to_mask(), MASK)


def test_filter_vmap_over_masks():
    masks = jnp.stack([MASK, ~MASK])
    models = eqx.filter_vmap(Model)(masks)
    got = eqx.filter_vmap(lambda model, x: model(x), in_axes=(eqx.if_array(0), None))(models, X)
    for y, mask in zip(got, masks, strict=True):
        np.testing.assert_allclose(y, Model(mask)(X), rtol=LIMIT, atol=LIMIT)


def test_partition_and_leaves_on_disk(tmp_path):
    model, other = Model(MASK), Model(~MASK)
    arrays, static = eqx.partition(model, eqx.is_array)
    np.testing.assert_array_equal(eqx.combine(arrays, static)(X), model(X))
    eqx.tree_serialise_leaves(tmp_path / "model.eqx", model)
    read = eqx.tree_deserialise_leaves(tmp_path / "model.eqx", other)
    np.testing.assert_array_equal(read(X), model(X))


def test_saturated_layers():
    layer = js.bounded.inspect(np.abs(WEIGHT[:, :3].T @ WEIGHT[:, :3]), -0.1, 2.0)

    class Stack(eqx.Module):
        first: js.bounded.Layer
        rest: js.bounded.Network

        def __call__(self, x):
            acts = js.bounded_matmul(x, self.first)
            return self.rest(acts).materialize()

    model = Stack(layer, js.bounded.network([layer, layer]))
    x = jnp.asarray(RNG.random((5, 3)), jnp.float32)
    want = x
    for _ in range(3):
        want = js.bounded_matmul(want, layer)
    got = eqx.filter_jit(model)(x)
    np.testing.assert_allclose(got, want.materialize(), rtol=LIMIT, atol=LIMIT)
