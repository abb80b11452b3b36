"""Decoding with ReLU networks: the cache gives what the whole text gives, and the demo."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

#: Of the largest logit, in float32: sums are in another order. A GPU multiplies in TF32.
TOLERANCE = 2e-2 if jax.default_backend() == "gpu" else 1e-5


@pytest.fixture
def relu(examples):
    return importlib.import_module("models.relu")


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_decoding_continues_the_prompt(relu, form):
    """The logits after a prompt and an answer are those of both as one prompt."""
    config = relu.Config(2, 128, 50, 16)
    params = relu.initial(config, 0.9, "float32")
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 50, (2, 7)), jnp.int32)
    start = jax.jit(functools.partial(relu.prompt, form, 12))
    logits, cache = start(params, ids)
    tokens, last = jax.jit(functools.partial(relu.decode, form, 5))(params, logits, cache)
    assert tokens.shape == (2, 5)
    np.testing.assert_array_equal(tokens[:, 0], logits.argmax(-1))
    whole, _ = start(params, jnp.concatenate([ids, tokens], 1))
    bound = TOLERANCE * float(jnp.abs(whole).max())
    np.testing.assert_allclose(last, whole, rtol=0, atol=bound)


def test_the_bias_sets_the_zeros(relu):
    params = relu.initial(relu.Config(3, 128, 50, 16), 0.9, "float32")
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 50, (4, 16)), jnp.int32)
    zeros = jax.jit(relu.zeros_of)(params, ids)
    np.testing.assert_allclose(zeros, np.full(3, 0.9), atol=0.03)


def test_the_demo(examples, tmp_path, capsys):
    demo = importlib.import_module("relu_decode")
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        found = demo.main(["--quick", "--out", str(tmp_path)])
    assert [row.name for row in found.rows] == ["trained, 2 x 64", "125M, random"]
    for row in found.rows:
        assert row.same == row.answer or jax.default_backend() == "gpu"
        assert row.error <= demo.TOLERANCE["float32"] or jax.default_backend() == "gpu"
        assert set(row.token) == set(row.prompt) == set(row.memory) == set(demo.FORMS)
        assert min(*row.token.values(), *row.prompt.values()) > 0
        assert 1 < row.by_bytes < 2
        assert 0 < row.zeros.min() <= row.zeros.max() < 1
    check_picture(found.picture)
    assert "largest difference of a logit" in capsys.readouterr().out


def test_a_prompt_that_leaves_no_room(examples, tmp_path):
    demo = importlib.import_module("relu_decode")
    with pytest.raises(ValueError, match="--prompt 64: 125M, random has 64 positions"):
        demo.main(["--quick", "--steps", "0", "--prompt", "64", "--out", str(tmp_path)])
