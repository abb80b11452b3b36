"""Bad input to masked_matmul, masked_dense and lengths_mask: an error that names the argument."""

import jax
import jax.numpy as jnp
import pytest

import jaxsparse as js

A, B = jnp.ones((6, 8)), jnp.ones((8, 10))
MASK = jnp.ones((3, 2), bool)

CASES = {
    "a list": ({"a": [1.0]}, TypeError, "a must be an array"),
    "a rank": ({"a": A[0]}, ValueError, "a has shape"),
    "a int": ({"a": A.astype(jnp.int32)}, TypeError, "a has dtype int32"),
    "b dtype": ({"b": B.astype(jnp.bfloat16)}, TypeError, "b has dtype bfloat16"),
    "b depth": ({"b": B[:5]}, ValueError, "b has shape"),
    "mask dtype": ({"a_mask": MASK.astype(jnp.int32)}, TypeError, "a_mask has dtype int32"),
    "mask shape": ({"a_mask": MASK[:2]}, ValueError, "a_mask has shape"),
    "mask list": ({"b_mask": [True]}, TypeError, "b_mask must be an array"),
    "batch": ({"a": jnp.ones((2, 6, 8)), "b": jnp.ones((3, 8, 10))}, ValueError, "leading axes"),
    "granularity zero": ({"granularity": (0, 4)}, ValueError, "granularity="),
    "granularity type": ({"granularity": 4}, TypeError, "granularity takes two ints"),
    "granularity key": ({"granularity": {"c": (1, 1)}}, ValueError, "granularity has the keys"),
    "granularity keys": ({"granularity": {"c": (1, 1), 1: (1, 1)}}, ValueError, r"\['c', 1\]"),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'"),
    "result dtype": ({"preferred_element_type": jnp.float16}, TypeError, "preferred_element_type"),
    "implementation": ({"implementation": "tpu"}, ValueError, "'tpu' is none of"),
    "density share": ({"density": 1.5}, ValueError, "density=1.5"),
    "density nan": ({"density": float("nan")}, ValueError, "density=nan"),
    "density type": ({"density": "low"}, TypeError, "density='low'"),
    "density array": ({"density": jnp.float32(0.5)}, TypeError, "density="),
}


@pytest.mark.parametrize("name", CASES)
def test_error_names_the_argument(name):
    changed, error, words = CASES[name]
    arguments = {"a": A, "b": B, "granularity": (2, 4), **changed}
    a, b = arguments.pop("a"), arguments.pop("b")
    with pytest.raises(error, match=words):
        js.masked_matmul(a, b, **arguments)
    with pytest.raises(error, match=words):
        jax.eval_shape(lambda: js.masked_matmul(a, b, **arguments))


X, W = jnp.ones((2, 5, 8)), jnp.ones((8, 10))
TOKENS = jnp.ones((2, 5), bool)
DENSE = {
    "x rank": ({"x": X[0, 0]}, ValueError, "x has shape"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array"),
    "w rank": ({"w": W[0]}, ValueError, "w has shape"),
    "w dtype": ({"w": W.astype(jnp.float16)}, TypeError, "w has dtype float16"),
    "w depth": ({"w": W[:4]}, ValueError, "w has shape"),
    "mask dtype": ({"token_mask": TOKENS.astype(jnp.int8)}, TypeError, "token_mask has dtype int8"),
    "mask shape": ({"token_mask": TOKENS[:1]}, ValueError, "token_mask has shape"),
    "mask index": (
        {"token_mask": js.tile_index(TOKENS[None])},
        ValueError,
        "token_mask is a TileIndex",
    ),
    "bias": ({"bias": jnp.ones(3)}, ValueError, "bias has shape"),
    "base": ({"base": X}, ValueError, "base is float32"),
    "activation": ({"activation": "tanh"}, ValueError, "activation='tanh'"),
}


@pytest.mark.parametrize("name", DENSE)
def test_masked_dense_names_the_argument(name):
    changed, error, words = DENSE[name]
    arguments = {"x": X, "w": W, "token_mask": TOKENS, **changed}
    x, w, mask = (arguments.pop(k) for k in ("x", "w", "token_mask"))
    with pytest.raises(error, match=words):
        js.masked_dense(x, w, mask, **arguments)


@pytest.mark.parametrize(
    ("lengths", "n", "error", "words"),
    [
        ([1, 2], 3, TypeError, "lengths must be an array"),
        (jnp.ones(2), 3, TypeError, "lengths has dtype float32"),
        (jnp.ones(2, jnp.int32), 3.0, TypeError, "n must be an int"),
        (jnp.ones(2, jnp.int32), -1, ValueError, "n=-1"),
    ],
)
def test_lengths_mask_names_the_argument(lengths, n, error, words):
    with pytest.raises(error, match=words):
        js.lengths_mask(lengths, n)
