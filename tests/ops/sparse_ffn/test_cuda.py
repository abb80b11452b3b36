"""The CUDA kernels of sparse_ffn: widths past a panel and a word, every count of tokens, dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close
from ops.sparse_ffn.test_suite import hidden

import jaxsparse as js

pytestmark = pytest.mark.gpu

SIZES = [(8, 8, 8), (24, 40, 264), (520, 1000, 512), (768, 3072, 768), (2048, 5632, 2048)]


def problem(rng, tokens, sizes, zeros, dtype):
    """Rounded operands; pre-activations are at least 1/8 away from 0."""
    d, f, out = sizes
    x = rng.standard_normal((tokens, d)) / 16
    x[:, 0] = 1
    first = rng.standard_normal((d, f)) / d**0.5
    first[0] = np.where(rng.random(f) < zeros, -1.0, 1.0) * (1 + rng.random(f))
    arrays = {
        "x": x,
        "w_gate": first,
        "w_up": rng.standard_normal((d, f)) / d**0.5,
        "w_down": rng.standard_normal((f, out)) / f**0.5,
    }
    return {name: jnp.asarray(v, dtype) for name, v in arrays.items()}


def exact(given):
    return {name: np.asarray(v.astype(jnp.float32), np.float64) for name, v in given.items()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("gated", [False, True])
def test_values(rng, dtype, sizes, gated):
    for tokens in (1, 2, 3, 4, 5, 8):
        for zeros in (0.0, 0.9, 0.99, 1.0):
            given = problem(rng, tokens, sizes, zeros, dtype)
            if not gated:
                given["w_up"] = given.pop("w_gate")
            with js.config(variant="lists"):
                run = jax.jit(lambda g: js.sparse_ffn(**g, activation="relu2"))
                got = run(given)
                again = run(given)
            want = hidden(exact(given), "relu2", None) @ exact(given)["w_down"]
            assert_close(got.astype(jnp.float32), want, dtype, 4.0)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(again))


def test_rows_of_zeros_are_not_read(rng):
    given = problem(rng, 3, (64, 512, 128), 0.5, "bfloat16")
    off = np.asarray(given["w_gate"][0] < 0)
    clean = exact(given)
    given["w_down"] = given["w_down"].at[off].set(jnp.nan)
    with js.config(variant="lists"):
        got = js.sparse_ffn(**given)
    want = hidden(clean, "relu", None) @ clean["w_down"]
    assert_close(got.astype(jnp.float32), want, "bfloat16", 4.0)


def test_in_a_scan_of_calls(rng):
    """Back to back: the counters of one call do not disturb the next."""
    given = problem(rng, 2, (256, 1024, 256), 0.9, "float32")
    x, w = given.pop("x"), given
    with js.config(variant="lists"):
        step = lambda x, _: (x + js.sparse_ffn(x, **w) / 8, None)  # noqa: E731
        got = jax.jit(lambda x: jax.lax.scan(step, x, length=20)[0])(x)
    want, exactly = exact({"x": x})["x"], exact(w)
    for _ in range(20):
        want = want + hidden({"x": want, **exactly}, "relu", None) @ exactly["w_down"] / 8
    assert_close(got, want, "float32", 8.0)


def test_what_the_kernels_do_not_take():
    x, up, down = jnp.ones((9, 16)), jnp.ones((16, 24)), jnp.ones((24, 16))
    told = str(js.explain(js.sparse_ffn, x, up, down))
    assert "float32: the kernels for a GPU list many tokens in 16-bit dtypes" in told
    with pytest.raises(ValueError, match="multiples of 8"), js.config(variant="lists"):
        js.sparse_ffn(x[:2, :15], up[:15], down)
    with pytest.raises(ValueError, match="top_k"), js.config(variant="lists"):
        js.sparse_ffn(x[:2], up, down, top_k=3)
