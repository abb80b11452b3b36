"""The dense form on a GPU: zeros are written into XLA's result where it is large and nothing
follows the sums.
"""

import jax
import jax.numpy as jnp
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.ops.masked_conv import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="the dense form of a GPU"),
]


def data(rng, dtype, side, channels, outputs, window=1):
    x = jnp.asarray(rng.standard_normal((2, side, side, channels)), dtype)
    sizes = window, window, channels, outputs
    kernel = jnp.asarray(rng.standard_normal(sizes) / (window * channels**0.5), dtype)
    return x, kernel


@pytest.mark.parametrize("density", [0.0, 0.3, 1.1])
@pytest.mark.parametrize("side", [8, 97])  # a small result and a large one
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_unset_pixels_are_zero_and_may_hold_nan(rng, dtype, side, density):
    x, kernel = data(rng, dtype, side, 64, 136)
    assert (2 * side**2 * 136 * x.dtype.itemsize >= run.LARGE) == (side == 97)
    mask = jnp.asarray(rng.random(x.shape[:3]) < density)
    x = jnp.where(mask[..., None], x, jnp.nan)
    want = js.masked_conv(x, kernel, mask, implementation="reference")
    with js.config(variant="dense"):
        call = jax.jit(js.masked_conv)
        assert_close(call(x, kernel, mask), want, dtype)
        text = call.lower(x, kernel, mask).as_text()
    assert ("jaxsparse_fill_rows" in text) == (side == 97)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("window", [(1, 1), (1, 5), (3, 1), (2, 2)])
@pytest.mark.parametrize("padding", ["VALID", ((1, 3), (2, 2))])
def test_pixels_between_windows_may_hold_nan(rng, dtype, window, padding):
    """Every output is set, and the stride is larger than the window."""
    x = jnp.asarray(rng.standard_normal((2, 11, 14, 20)), dtype)
    kernel = jnp.asarray(rng.standard_normal((*window, 20, 7)) / 10, dtype)
    options = {"strides": (4, 6), "padding": padding}
    mask = jnp.ones_like(js.mask.propagate(jnp.ones(x.shape[:3], bool), window, **options))
    # Not 0 where some output reads the pixel.
    reads = jax.grad(
        lambda x: (
            js.masked_conv(x, abs(kernel), mask, implementation="reference", **options)
            .astype(jnp.float32)
            .sum()
        )
    )(jnp.ones_like(x))
    bad = jnp.where(reads != 0, x, jnp.nan)
    assert jnp.isnan(bad).any()
    want = js.masked_conv(x, kernel, mask, implementation="reference", **options)
    with js.config(variant="dense"):
        assert_close(
            jax.jit(js.masked_conv, static_argnames=("strides", "padding"))(
                bad, kernel, mask, **options
            ),
            want,
            dtype,
        )


@pytest.mark.parametrize("more", ["bias", "base", "residual", "activation"])
def test_what_follows_the_sums_is_done_in_one_pass(rng, more):
    x, kernel = data(rng, "bfloat16", 97, 64, 136, window=3)
    mask = jnp.asarray(rng.random(x.shape[:3]) < 0.5)
    full = jnp.asarray(rng.standard_normal((*x.shape[:3], 136)), x.dtype)
    given = {"bias": full[0, 0, 0].astype(jnp.float32), "base": full, "residual": full}
    options = {more: given.get(more, "relu")}
    want = js.masked_conv(x, kernel, mask, implementation="reference", **options)
    with js.config(variant="dense"):
        call = jax.jit(lambda x: js.masked_conv(x, kernel, mask, **options))
        assert_close(call(x), want, "bfloat16")
        assert "jaxsparse_fill_rows" not in call.lower(x).as_text()


def test_gradients_and_batches(rng):
    x, kernel = data(rng, "float32", 80, 32, 72, window=3)
    mask = jnp.asarray(rng.random(x.shape[:3]) < 0.5)

    def loss(x, kernel, **how):
        return (js.masked_conv(x, kernel, mask, **how) ** 2).sum()

    want = jax.grad(loss, (0, 1))(x, kernel, implementation="reference")
    with js.config(variant="dense"):
        got = jax.jit(jax.grad(loss, (0, 1)))(x, kernel)
        each = jax.vmap(lambda k: js.masked_conv(x, k, mask))(jnp.stack([kernel, 2 * kernel]))
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, "float32")
    assert_close(each[1], 2 * each[0], "float32")
