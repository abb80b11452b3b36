"""The router's logits of bfloat16 tokens: as exact as float32 products, and differentiable."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.nn import moe


def test_logits_are_float32(rng):
    tokens = jnp.asarray(rng.standard_normal((40, 300))).astype(jnp.bfloat16)
    router = jnp.asarray(rng.standard_normal((300, 11)), jnp.float32)
    got = jax.jit(moe.router_logits)(tokens, router)
    want = np.asarray(tokens, np.float64) @ np.asarray(router, np.float64)
    assert got.dtype == jnp.float32
    assert np.abs(np.asarray(got, np.float64) - want).max() < 2e-6 * np.abs(want).max()


def test_router_at_the_ends():
    """Entries above bfloat16's largest number, infinite ones, NaN: as float32 multiplies them."""
    router = jnp.asarray([[3.4e38, -3.4e38, jnp.inf, -jnp.inf, jnp.nan, 1.0]], jnp.float32)
    tokens = jnp.asarray([[1e-3], [2**-40], [1.0]], jnp.bfloat16)
    got = moe.router_logits(tokens, router)
    want = tokens.astype(jnp.float32) * router
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_gradient(rng):
    tokens = jnp.asarray(rng.standard_normal((40, 30))).astype(jnp.bfloat16)
    router = jnp.asarray(rng.standard_normal((30, 11)), jnp.float32)
    ct = rng.standard_normal((40, 11)).astype(np.float32)
    into_tokens, into_router = jax.vjp(moe.router_logits, tokens, router)[1](jnp.asarray(ct))
    x, w = np.asarray(tokens, np.float64), np.asarray(router, np.float64)
    assert (into_tokens.dtype, into_router.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(np.asarray(into_tokens, np.float64), ct @ w.T, atol=0.1)
    np.testing.assert_allclose(into_router, x.T @ ct, atol=1e-4)


def test_a_bfloat16_router_is_one_part(rng):
    tokens = jnp.asarray(rng.normal(size=(40, 24)), jnp.bfloat16)
    router = jnp.asarray(rng.normal(size=(24, 6)), jnp.bfloat16)
    whole = router.astype(jnp.float32)
    np.testing.assert_allclose(
        moe.route_logits(tokens, router, None), moe.route_logits(tokens, whole, None), rtol=1e-5
    )
    shapes = jax.make_jaxpr(moe.route_logits, static_argnums=2)(tokens, router, None)
    assert "24,18" not in str(shapes)  # three parts side by side
    ct = jnp.asarray(rng.normal(size=(40, 6)), jnp.float32)
    into = jax.vjp(lambda r: moe.route_logits(tokens, r, None), router)[1](ct)[0]
    want = jax.vjp(lambda r: moe.route_logits(tokens, r, None), whole)[1](ct)[0]
    assert into.dtype == jnp.bfloat16
    np.testing.assert_array_equal(into, want.astype(jnp.bfloat16))
