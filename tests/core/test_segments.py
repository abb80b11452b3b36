"""Sums over a pattern: equal in both forms and in every transform; in order without a scatter."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxsparse as js
from jaxsparse.core.segments import add_up, gather, owners, segments

N, ENTRIES = 7, 40


def pattern(rng, ordered, ascending=False):
    ids = rng.integers(0, N, ENTRIES) // 2 * 2  # some places have no entry
    ids = np.sort(ids) if ascending else ids
    return segments(jnp.asarray(ids, jnp.int32), N, ordered=ordered, ascending=ascending)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("behind", [(), (3,)])
def test_both_forms_agree(rng, ascending, behind):
    values = jnp.asarray(rng.standard_normal((ENTRIES, *behind)), jnp.float32)
    places = jnp.asarray(rng.standard_normal((N, *behind)), jnp.float32)
    state = rng.bit_generator.state
    ordered = pattern(rng, True, ascending)
    rng.bit_generator.state = state
    plain = pattern(rng, False, ascending)
    np.testing.assert_array_equal(ordered.ids, plain.ids)
    want = np.zeros((N, *behind))
    np.add.at(want, np.asarray(plain.ids), np.asarray(values))
    for by in (ordered, plain):
        np.testing.assert_allclose(add_up(values, by, N), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(gather(places, by), places[plain.ids])
        back = jax.vjp(lambda p, by=by: gather(p, by), places)[1](values)[0]
        np.testing.assert_allclose(back, want, rtol=1e-4, atol=1e-5)
        back = jax.vjp(lambda v, by=by: add_up(v, by, N), values)[1](places)[0]
        np.testing.assert_array_equal(back, places[plain.ids])


def test_transforms(rng):
    by = pattern(rng, True)
    many = jnp.asarray(rng.standard_normal((4, N)), jnp.float32)

    def twice(x):
        return add_up(gather(x, by) ** 2, by, N)

    got = jax.jit(jax.vmap(twice))(many)
    for y, x in zip(got, many, strict=True):
        np.testing.assert_array_equal(y, jax.jit(twice)(x))
    check_grads(twice, (many[0],), order=2, modes=["fwd", "rev"], rtol=2e-2, atol=2e-2)


def test_a_nan_stays_in_its_place(rng):
    by = pattern(rng, True)
    values = np.ones(ENTRIES, np.float32)
    values[np.asarray(by.ids) == 2] = np.nan
    found = np.asarray(add_up(jnp.asarray(values), by, N))
    assert np.isnan(found[2])
    assert np.isfinite(np.delete(found, 2)).all()


@pytest.mark.parametrize("n", [1, 5])
def test_without_entries(n):
    by = segments(jnp.zeros(0, jnp.int32), n, ordered=True)
    np.testing.assert_array_equal(add_up(jnp.zeros((0, 2)), by, n), np.zeros((n, 2)))
    assert gather(jnp.ones(n), by).shape == (0,)


def test_owners():
    starts = jnp.asarray([0, 0, 3, 3, 4, 4], jnp.int32)
    np.testing.assert_array_equal(owners(starts, 6), [1, 1, 1, 3, 4, 4])


def float_scatters(text):
    """The scatters of floats in a lowered function."""
    found = re.findall(r'"stablehlo.scatter".*?\}\) : \(tensor<([^>]*)>', text, re.DOTALL)
    return [kind for kind in found if kind.endswith("f32")]


@pytest.mark.parametrize("what", ["layer", "network"])
def test_derivatives_of_saturated_layers_add_in_one_order(rng, what):
    """Under `deterministic` no float is added by a scatter, whose order a GPU does not keep."""
    weights = rng.standard_normal((12, 12)).astype(np.float32) * (rng.random((12, 12)) < 0.4)
    weights[:, 3] = weights[:, 4]  # outputs that fold
    layer = js.bounded.inspect(weights, -0.1, 1.5)
    net = js.bounded.network([layer, layer])
    x = jnp.asarray(rng.random((5, 12)), jnp.float32)

    def loss(x, held):
        out = js.bounded_matmul(x, held) if what == "layer" else held(x)
        return (out.materialize() ** 2).sum()

    held = layer if what == "layer" else net
    slope = jax.jit(jax.grad(loss, (0, 1), allow_int=True))
    plain = slope.lower(x, held).as_text()
    with js.config(deterministic=True):
        ordered, found = slope.lower(x, held).as_text(), slope(x, held)
    assert float_scatters(plain)
    assert not float_scatters(ordered)
    want = slope(x, held)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1].weights, want[1].weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1].bias, want[1].bias, rtol=1e-4, atol=1e-5)
