"""masked_dense against numpy: it is masked_conv under another name, so values, gradients and
transforms are spot checks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js


def problem(rng, batch=(3, 20)):
    lengths = rng.integers(0, batch[-1] + 1, batch[:-1])
    mask = np.arange(batch[-1]) < lengths[..., None]
    return (
        rng.standard_normal((*batch, 16), np.float32),
        rng.standard_normal((16, 24), np.float32) / 4,
        rng.standard_normal(24, np.float32),
        mask,
    )


@pytest.mark.parametrize("batch", [(50,), (3, 20), (2, 3, 20), (0, 5)])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_values(implementation, rng, batch, activation):
    x, w, bias, mask = problem(rng, batch)
    base = rng.standard_normal((*batch, 24), np.float32)
    y = x.astype(np.float64) @ w + bias
    want = np.where(mask[..., None], np.maximum(y, 0) if activation else y, base)
    x = np.where(mask[..., None], x, np.nan)
    got = js.masked_dense(
        jnp.asarray(x),
        jnp.asarray(w),
        jnp.asarray(mask),
        bias=jnp.asarray(bias),
        activation=activation,
        base=jnp.asarray(base),
        implementation=implementation,
    )
    assert_close(got, want, "float32")


def test_gradients_and_vmap(implementation, rng):
    x, w, bias, mask = map(jnp.asarray, problem(rng))

    def ours(x, w, bias, mask):
        y = js.masked_dense(x, w, mask, bias=bias, activation="gelu", implementation=implementation)
        return jnp.sum(jnp.sin(y))

    def dense(x, w, bias, mask):
        return jnp.sum(jnp.sin(jnp.where(mask[..., None], jax.nn.gelu(x @ w + bias), 0.0)))

    got = jax.grad(ours, (0, 1, 2))(x, w, bias, mask)
    for a, b in zip(got, jax.grad(dense, (0, 1, 2))(x, w, bias, mask), strict=True):
        assert_close(a, b, "float32", scale=2.0)
    many = jax.jit(jax.vmap(ours, in_axes=(0, None, None, 0)))(x, w, bias, mask)
    for i in range(3):
        assert_close(many[i], dense(x[i], w, bias, mask[i]), "float32", scale=10.0)


def test_one_index_serves_many_layers(implementation, rng):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    index = js.token_index(mask, implementation=implementation)
    got = js.masked_dense(x, w, index, implementation=implementation)
    assert_close(got, js.masked_dense(x, w, mask, implementation=implementation), "float32")


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"base": 0.0}, TypeError, "base must be an array, not float"),
        ({"base": [1]}, TypeError, "base must be an array, not list"),
        ({"base": jnp.ones((3, 24))}, ValueError, "base has shape"),
        ({"bias": [1.0] * 24}, TypeError, "bias must be an array, not list"),
        ({"bias": 1.0}, TypeError, "bias must be an array, not float"),
        ({"preferred_element_type": "foo"}, TypeError, "preferred_element_type='foo'"),
        ({"preferred_element_type": jnp.bfloat16}, TypeError, r"(?m)it takes float32$"),
        ({"implementation": 3}, TypeError, "implementation=3"),
    ],
)
def test_error_names_the_argument(rng, changed, error, words):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    with pytest.raises(error, match=words):
        js.masked_dense(x, w, mask, **changed)


def test_an_index_of_another_kind_names_token_index(rng):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    with pytest.raises(ValueError, match=r"need one of \(3, 1, 20\), which js.token_index makes"):
        js.masked_dense(x, w, js.tile_index(mask[None]))
    stack = jax.vmap(js.token_index)(mask[None])
    with pytest.raises(ValueError, match="token_mask is a stack"):
        js.masked_dense(x, w, stack)


def test_a_numpy_base_of_float64_is_taken_as_jax_does(rng):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    got = js.masked_dense(x, w, mask, base=np.full((3, 20, 24), 2.0))
    np.testing.assert_array_equal(np.asarray(got)[~np.asarray(mask)], 2.0)


def test_lengths_mask(rng):
    lengths = np.asarray([[-3, 0], [4, 9]])
    want = np.arange(5) < lengths[..., None]
    for dtype in (jnp.int8, jnp.int32):
        np.testing.assert_array_equal(js.lengths_mask(jnp.asarray(lengths, dtype), 5), want)
    huge = jnp.asarray([2**32 - 1, 2], jnp.uint32)
    np.testing.assert_array_equal(js.lengths_mask(huge, 3), [[1, 1, 1], [1, 1, 0]])
    wide = np.asarray([2**32 + 1, -(2**32) + 2, 2**31])
    np.testing.assert_array_equal(js.lengths_mask(wide, 5).sum(-1), [5, 0, 5])
    many = jax.jit(jax.vmap(lambda v: js.lengths_mask(v, 5)))(jnp.asarray(lengths))
    np.testing.assert_array_equal(many, want)
