"""Derivatives: those of min(max(W x + b, 0), upper), whatever the recorder or the proofs skip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bounded.stacks import bundled, inputs, layers_of, saturating, signed

import jaxsparse as js


def dense(x, weights, biases, uppers):
    for w, b, u in zip(weights, biases, uppers, strict=True):
        w = w.toarray() if hasattr(w, "toarray") else w
        s = jnp.matmul(x, jnp.asarray(w).T, precision=jax.lax.Precision.HIGHEST) + b
        x = jnp.where(s <= 0, 0.0, jnp.where(s >= u, u, s))
    return x


def assert_close(got, want):
    np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("way", [None, "row", "slab", "column", "converged"])
def test_values_of_one_layer(implementation, rng, way):
    if implementation != "cuda" and way not in (None, "converged"):
        pytest.skip("dataflows are the GPU's")
    stack = signed(rng, (33, 50))
    x, g = jnp.asarray(inputs(rng, 20, 33)), jnp.asarray(rng.standard_normal((20, 50)), jnp.float32)
    x = x.at[5].set(x[0])  # equal images share results, not derivatives
    layer = layers_of(stack)[0]

    def f(x):
        acts = js.bounded_matmul(x, layer, dataflow=way, implementation=implementation)
        return (acts.materialize() * g).sum()

    assert_close(jax.jit(jax.grad(f))(x), jax.grad(lambda x: (dense(x, *stack) * g).sum())(x))


def test_through_codes_layer_by_layer(implementation, rng):
    stack = saturating(rng, (24, 32, 32))
    x = jnp.asarray(inputs(rng, 30, 24)) * 0.1
    first, second = layers_of(stack)

    def f(x):
        acts = js.bounded_matmul(x, first, segment=4, implementation=implementation)
        acts = js.bounded_matmul(acts, second, segment=8, implementation=implementation)
        return (acts.materialize() ** 2).sum()

    want = jax.grad(lambda x: (dense(x, *stack) ** 2).sum())(x)
    assert bool((want != 0).any())
    assert_close(jax.grad(f)(x), want)
    per_image = jax.vmap(jax.grad(lambda row: f(row[None])))(x)
    assert_close(per_image, want)


def test_weights_and_bias_of_one_layer(implementation, rng):
    (weight,), (bias,), (upper,) = signed(rng, (33, 50))
    layer = js.bounded.inspect(weight.T, bias, upper, fold=False)
    x = jnp.asarray(inputs(rng, 12, 33))
    rows = np.repeat(np.arange(50), np.diff(layer.starts))

    def f(weights, bias):
        taken = layer.with_values(weights, bias)
        return (js.bounded_matmul(x, taken, implementation=implementation).materialize() ** 2).sum()

    def want(weights, bias):
        whole = jnp.zeros((50, 33)).at[rows, layer.indices].add(weights)
        return (dense(x, [whole], [bias], [upper]) ** 2).sum()

    args = jnp.asarray(layer.weights), jnp.asarray(layer.bias)
    for got, wanted in zip(jax.grad(f, (0, 1))(*args), jax.grad(want, (0, 1))(*args), strict=True):
        assert_close(got, wanted)


def test_other_weights_have_no_proofs(rng):
    layer = layers_of(saturating(rng, (16, 16)))[0]
    assert layer.proofs()["zero rows stay zero"]
    assert not layer.with_values(layer.weights).proofs()["zero rows stay zero"]
    assert not layer.with_values(layer.weights).keeps_upper(1e30)
    with pytest.raises(ValueError, match="weights has shape"):
        layer.with_values(layer.weights[1:])


@pytest.mark.parametrize("make", [signed, saturating, bundled])
def test_a_network(implementation, rng, make):
    stack = make(rng, (20, 48, 32, 10))
    net = js.bounded.network(layers_of(stack), implementation=implementation)
    x = jnp.asarray(inputs(rng, 16, 20)) * 0.2
    f = jax.jit(jax.grad(lambda x: (net(x).materialize() ** 2).sum()))
    assert_close(f(x), jax.grad(lambda x: (dense(x, *stack) ** 2).sum())(x))


def test_what_has_no_derivative_says_so(rng):
    layers = layers_of(signed(rng, (8, 8, 8)))
    x = jnp.asarray(inputs(rng, 4, 8))
    run = js.bounded.converged(layers)
    with pytest.raises(TypeError, match=r"js\.bounded\.converged has no derivative"):
        jax.grad(lambda x: run(x).values.sum())(x)
    with pytest.raises(TypeError, match="weight is traced"):
        jax.jit(lambda w: js.bounded.inspect(w, 0.0, 1.0).weights)(x)


def test_second_derivatives_of_a_network(implementation, rng):
    stack = signed(rng, (24, 30, 20))
    x = jnp.asarray(inputs(rng, 7, 24))
    net = js.bounded.network(layers_of(stack), implementation=implementation)

    def twice(f):
        first = jax.grad(lambda x: (f(x) ** 2).sum())
        return jax.jit(jax.grad(lambda x: (first(x) ** 2).sum()))

    assert_close(twice(lambda x: net(x).materialize())(x), twice(lambda x: dense(x, *stack))(x))


def test_second_derivatives_through_a_recorded_convolution(implementation, rng):
    x, k1, k2 = (
        jnp.asarray(rng.standard_normal(s), jnp.float32)
        for s in ((1, 6, 6, 4), (1, 1, 4, 4), (3, 3, 4, 2))
    )
    mask = jnp.ones((1, 6, 6), bool)
    options = {"implementation": implementation, "precision": "highest"}

    def run(k1, recorded):
        y = js.masked_conv(x, k1, mask, activation="relu6", record=recorded, **options)
        y, found = y if recorded else (y, None)
        return (js.masked_conv(y, k2, mask, recorder=found, **options) ** 2).sum()

    def twice(recorded):
        first = jax.grad(lambda k: run(k, recorded))
        return jax.grad(lambda k: (first(k) ** 2).sum())

    assert_close(twice(True)(k1), twice(False)(k1))
