"""sparse_ffn: top-k, what is skipped, and which way runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close
from ops.sparse_ffn.test_suite import hidden

import jaxsparse as js

CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="choices of the CPU")


def problem(rng, tokens, d=24, f=130, out=70):
    return {
        "x": rng.standard_normal((tokens, d), np.float32),
        "w_up": rng.standard_normal((d, f), np.float32) / np.float32(d**0.5),
        "w_gate": rng.standard_normal((d, f), np.float32) / np.float32(d**0.5),
        "w_down": rng.standard_normal((f, out), np.float32) / np.float32(f**0.5),
    }


def exact(given):
    return {name: v.astype(np.float64) for name, v in given.items()}


@pytest.mark.parametrize("tokens", [1, 3, 4, 21])
@pytest.mark.parametrize("activation", ["relu", "relu2"])
def test_top_k(implementation, rng, tokens, activation):
    given = problem(rng, tokens)
    options = {"activation": activation, "top_k": 7, "precision": "highest"}  # TF32 reorders
    got = js.sparse_ffn(**given, **options, implementation=implementation)
    want = hidden(exact(given), activation, 7) @ exact(given)["w_down"]
    assert_close(got, want, "float32", 4.0)


def test_top_k_takes_the_first_of_equal_ones(implementation):
    given = {"x": jnp.ones((2, 1)), "w_up": jnp.asarray([[1.0, 2, 1, 2, 1]]), "w_down": jnp.eye(5)}
    got = js.sparse_ffn(**given, top_k=3, implementation=implementation)
    np.testing.assert_array_equal(got, [[1, 2, 0, 2, 0]] * 2)


def test_gradient_of_top_k_is_that_of_what_is_kept(implementation, rng):
    given = problem(rng, 5)

    def loss(given):
        y = js.sparse_ffn(**given, top_k=9, implementation=implementation)
        return jnp.sin(y).sum()

    def plain(given):
        h = jax.nn.relu(given["x"] @ given["w_gate"]) * (given["x"] @ given["w_up"])
        least = -jnp.sort(-jnp.abs(h), axis=-1)[:, 8:9]
        kept = jnp.where(jax.lax.stop_gradient(jnp.abs(h) >= least), h, jnp.zeros_like(h))
        return jnp.sin(kept @ given["w_down"]).sum()

    with jax.default_matmul_precision("highest"):
        want = jax.jit(jax.grad(plain))(given)
    got = jax.jit(jax.grad(loss))(given)
    for name, value in want.items():
        assert_close(got[name], value, "float32", 4.0)


def test_nan_reaches_its_own_token(implementation):
    x = jnp.ones((3, 8)).at[1].set(jnp.nan)
    weights = {"w_up": jnp.ones((8, 16)), "w_down": jnp.ones((16, 8))}
    got = np.asarray(js.sparse_ffn(x, **weights, implementation=implementation))
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(got[[0, 2]], 128.0)


def test_closed_gates_give_zeros(implementation):
    """Also where the other factor is infinite."""
    up = jnp.full((8, 16), jnp.inf)
    got = js.sparse_ffn(
        jnp.ones((3, 8)),
        up,
        jnp.ones((16, 8)),
        w_gate=-jnp.ones((8, 16)),
        implementation=implementation,
    )
    np.testing.assert_array_equal(got, np.zeros((3, 8)))


@CPU
def test_rows_of_zeros_are_not_read(rng):
    """By one call for few tokens, and by the lists of many."""
    given = problem(rng, 3) | {"w_gate": None}
    off = np.arange(130) % 3 > 0
    given["x"][:, 0] = 1
    given["w_up"][0, off] = -100
    given["w_down"][off] = np.nan
    for tokens in (3, 9):
        with js.config(variant="lists"):
            x = np.tile(given["x"], (tokens // 3, 1))
            got = js.sparse_ffn(**given | {"x": x}, implementation="cpu")
        clean = exact(given | {"x": x, "w_down": np.nan_to_num(given["w_down"])} | {"w_gate": x})
        del clean["w_gate"]
        assert_close(got, hidden(clean, "relu", None) @ clean["w_down"], "float32", 4.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 13, 40])
def test_transposed_up(implementation, rng, tokens, gated, dtype):
    """Depths of whole vectors and with a rest, in every group of tokens."""
    for depth in (5, 128, 150):
        given = problem(rng, tokens, d=depth) | ({} if gated else {"w_gate": None})
        given = {k: v if v is None else jnp.asarray(v, dtype) for k, v in given.items()}
        want = js.sparse_ffn(**given, implementation="reference", precision="highest")
        given["w_up"] = given["w_up"].T
        got = js.sparse_ffn(
            **given, transposed_up=True, implementation=implementation, precision="highest"
        )
        assert_close(got, want.astype(jnp.float32), dtype, 4.0)


@CPU
def test_rows_of_closed_gates_are_not_read(rng):
    given = problem(rng, 3)
    off = np.arange(130) % 3 > 0
    given["x"][:, 0] = 1
    given["w_gate"][0, off] = -100
    clean = exact(given)
    given["w_up"] = np.where(off, np.float32(np.nan), given["w_up"]).T
    got = js.sparse_ffn(**given, transposed_up=True, implementation="cpu")
    assert_close(got, hidden(clean, "relu", None) @ clean["w_down"], "float32", 4.0)


def test_gradients_of_transposed_up(implementation, rng):
    given = problem(rng, 3)

    def loss(given, transposed):
        y = js.sparse_ffn(**given, transposed_up=transposed, implementation=implementation)
        return jnp.sin(y).sum()

    want = jax.grad(loss)(given, False)
    got = jax.grad(loss)(given | {"w_up": given["w_up"].T}, True)
    for name, value in (want | {"w_up": want["w_up"].T}).items():
        assert_close(got[name], value, "float32", 4.0)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels of a GPU")
def test_few_tokens_of_transposed_up_are_dense_on_a_gpu(rng):
    given = problem(rng, 3, d=24, f=128, out=64)
    given["w_up"] = given["w_up"].T
    (call,) = js.explain(lambda **given: js.sparse_ffn(**given, transposed_up=True), **given).calls
    assert call.choice.first == "dense"


@CPU
def test_many_tokens_choose_by_what_is_zero(rng):
    given = problem(rng, 40) | {"w_gate": None}
    given["x"][:, 0] = 1
    run = jax.jit(js.sparse_ffn)
    for bias, ran, share in ((-100.0, "lists", 0.0), (100.0, "dense", 1.0)):
        given["w_up"][0] = bias
        told = js.explain(run, **given)
        (call,) = told.calls
        assert call.counts == [share * 40 * 130]
        assert call.variant(call.counts[0]) == ran
        assert "lax.switch on the density" in str(told)
        assert f"ran {ran}" in str(told)


@CPU
def test_few_tokens_are_one_call(rng):
    given = problem(rng, 4)
    text = jax.jit(js.sparse_ffn).lower(**given).compile().as_text()
    assert text.count('custom_call_target="jaxsparse_sparse_ffn"') == 1
    assert " dot(" not in text
    (call,) = js.explain(js.sparse_ffn, **given).calls
    assert (call.choice.first, call.unit) == ("lists", "activations")


@CPU
@pytest.mark.parametrize("bias", [-1.5, 0.0, 1.0])
def test_two_groups_of_tokens(rng, bias):
    """Eleven tokens of 16 bits are one call: lists of their own, or one for each group."""
    given = problem(rng, 11, f=600)
    given["x"][:, 0] = 1
    given["w_gate"][0] = bias
    given = {name: jnp.asarray(v, jnp.bfloat16) for name, v in given.items()}
    got = js.sparse_ffn(**given, implementation="cpu")
    plain = {name: np.asarray(v.astype(jnp.float32)) for name, v in given.items()}
    want = hidden(exact(plain), "relu", None) @ exact(plain)["w_down"]
    assert_close(got.astype(jnp.float32), want, "bfloat16")
