"""SparseFFN against flax's own Dense layers of the same parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import jaxsparse as js

D, HIDDEN, OUT = 6, 20, 8


class Plain(linen.Module):
    """What SparseFFN stands for."""

    @linen.compact
    def __call__(self, x):
        up = linen.Dense(HIDDEN, use_bias=False, name="up")(x)
        gate = linen.Dense(HIDDEN, use_bias=False, name="gate")(x)
        h = jax.nn.relu(gate) ** 2 * up
        return linen.Dense(OUT, use_bias=False, name="down")(h)


def test_parameters_are_those_of_dense_layers(rng):
    x = jnp.asarray(rng.standard_normal((3, 5, D), np.float32))
    layer = js.nn.linen.SparseFFN(HIDDEN, OUT, gated=True, activation="relu2")
    variables = layer.init(jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(
        jnp.shape, Plain().init(jax.random.key(0), x)
    )
    want = Plain().apply(variables, x)
    np.testing.assert_allclose(layer.apply(variables, x), want, rtol=1e-3, atol=1e-3)
    ours = js.nn.nnx.SparseFFN(D, HIDDEN, OUT, gated=True, activation="relu2", rngs=nnx.Rngs(0))
    for name, kernel in variables["params"].items():
        getattr(ours, name).kernel[...] = kernel["kernel"]
    np.testing.assert_allclose(ours(x), want, rtol=1e-3, atol=1e-3)


def test_plain_layer_keeps_the_width(rng):
    x = jnp.asarray(rng.standard_normal((2, D), np.float32))
    layer = js.nn.linen.SparseFFN(HIDDEN, top_k=3, dtype=jnp.bfloat16)
    variables = layer.init(jax.random.key(0), x)
    assert set(variables["params"]) == {"up", "down"}
    assert layer.apply(variables, x).dtype == jnp.bfloat16
    ours = js.nn.nnx.SparseFFN(D, HIDDEN, top_k=3, rngs=nnx.Rngs(0))
    assert ours(x).shape == x.shape
    assert ours.gate is None


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"hidden": 0}, ValueError, "^hidden=0"),
        ({"features": 1.5}, TypeError, "^features=1.5"),
        ({"gated": 1}, TypeError, "^gated must be a bool"),
        ({"use_bias": True}, ValueError, "^use_bias=True; SparseFFN has no biases. Add"),
        ({"activation": "gelu"}, ValueError, "^activation='gelu'"),
        ({"top_k": 0}, ValueError, "^top_k=0"),
        ({"dtype": "foo"}, TypeError, "^dtype='foo'"),
        ({"implementation": "z"}, ValueError, "^implementation='z'"),
    ],
)
def test_options(changed, error, words):
    given = {"hidden": HIDDEN, **changed}
    with pytest.raises(error, match=words):
        js.nn.linen.SparseFFN(**given)
    with pytest.raises(error, match=words):
        js.nn.nnx.SparseFFN(D, **given, rngs=nnx.Rngs(0))


def test_inputs():
    layer = js.nn.nnx.SparseFFN(D, HIDDEN, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"^inputs has shape \(2, 4\); in_features=6"):
        layer(jnp.ones((2, 4)))
    with pytest.raises(TypeError, match=r"^inputs must be an array"):
        js.nn.linen.SparseFFN(HIDDEN).init(jax.random.key(0), [1.0])
