"""Whole stacks in one call: equal to float64 with and without proofs, folded or not, under every
transform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import blinking, bundled, inputs, layers_of, oracle, saturating, signed

import jaxsparse as js
from jaxsparse.bounded.radixnet import patterns

STACKS = {
    "signed": lambda rng: signed(rng, (33, 50, 17, 40)),
    "saturating": lambda rng: saturating(rng, (48, 64, 40, 64, 64, 64)),
    "blinking": lambda rng: blinking(24),
    "bundled": lambda rng: bundled(rng, (33, 64, 48, 160, 40)),
    "filled up": lambda rng: bundled(rng, (20, 70, 60, 8)),
    "single": lambda rng: signed(rng, (20, 31)),
    "narrow": lambda rng: signed(rng, (5, 1, 3), 0.9),
}


@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", STACKS)
def test_equals_float64(implementation, rng, name, fold, batch):
    stack = STACKS[name](rng)
    x = inputs(rng, batch, stack[0][0].shape[1])
    net = js.bounded.network(layers_of(stack, fold=fold), fold=fold, implementation=implementation)
    out = net(jnp.asarray(x))
    want = oracle(x, *stack)
    np.testing.assert_allclose(out.materialize(), want, atol=1e-5 * len(stack[0]) * 8)
    codes = np.asarray(out.recorder.codes)[:, 0]
    got = np.asarray(out.materialize())
    np.testing.assert_array_equal(codes == js.recorder.ZERO, (got == 0).all(1))
    full = (got == np.float32(stack[2][-1])).all(1)
    np.testing.assert_array_equal(codes == js.recorder.UPPER, full)


def test_retires_only_what_is_proven(rng):
    proven = js.bounded.network(layers_of(saturating(rng, (32, 32, 32, 32))))
    assert proven.retires() == {"zero": 0, "upper": 0}
    assert proven.decides
    assert proven.widest < 32
    open_ended = js.bounded.network(layers_of(signed(rng, (32, 32, 32))))
    assert open_ended.retires()["upper"] == 1
    assert not open_ended.decides
    assert not js.bounded.network(layers_of(saturating(rng, (32, 32, 32))), retire=False).decides


def test_rows_with_the_same_inputs_bundle(rng):
    net = js.bounded.network(layers_of(bundled(rng, (33, 64, 48, 160, 40))))
    assert net.bundles
    assert [rows for _, _, _, rows in net.shapes] == [16, 16, 16, 1]
    assert "in bundles" in repr(net)
    assert not js.bounded.network(layers_of(signed(rng, (33, 64, 48)))).bundles
    unfolded = js.bounded.network(js.bounded.radixnet(64, 4, fold=False), fold=False)
    assert unfolded.bundles
    assert unfolded.widest == 64


def test_bundles_that_share_inputs_are_neighbours(rng):
    # A ring of patterns, in random order: pattern k has the inputs k and k + 1, times three.
    ring = rng.permutation(40)
    weight = np.zeros((640, 120), np.float32)
    for at, k in enumerate(ring):
        inputs_of = np.array([3 * k, 3 * k + 1, 3 * k + 2, 3 * k + 3, 3 * k + 4, 3 * k + 5]) % 120
        weight[16 * at : 16 * at + 16, inputs_of] = rng.standard_normal((16, 6))
    net = js.bounded.network([js.bounded.inspect(weight.T, 0.0, 1.0, fold=False)], fold=False)
    assert net.bundles
    patterns_of = [set(row) for row in np.asarray(net.indices).reshape(40, -1).tolist()]
    distance = {}
    for at, pattern in enumerate(patterns_of):
        for i in pattern:
            distance.setdefault(i, []).append(at)
    assert max(max(uses) - min(uses) for uses in distance.values()) <= 2


@pytest.mark.parametrize("neurons", [64, 512])
@pytest.mark.parametrize("fold", [True, False])
def test_challenge_shape(implementation, rng, neurons, fold):
    depth = 3 * (neurons // 16).bit_length() + 4
    weights = list(patterns(neurons, depth))
    layers = js.bounded.radixnet(neurons, depth, fold=fold)
    net = js.bounded.network(layers, fold=fold, implementation=implementation)
    x = (rng.random((300, neurons)) < rng.uniform(0, 0.6, (300, 1))).astype(np.float32)
    out = net(jnp.asarray(x))
    want = oracle(x, weights, [-0.3] * depth, [32.0] * depth)
    np.testing.assert_array_equal(js.bounded.categories(out), np.flatnonzero(want.any(1)))
    assert float(out.recorder.share(js.recorder.UPPER)) > 0.1


def test_more_images_than_the_device_takes_at_a_time(implementation, rng):
    if implementation == "reference":
        pytest.skip("the reference has one way")
    weights = list(patterns(64, 15))
    net = js.bounded.network(
        js.bounded.radixnet(64, 15, fold=False), fold=False, implementation=implementation
    )
    x = (rng.random((20077, 64)) < rng.uniform(0, 0.6, (20077, 1))).astype(np.float32)
    x[5, 7], x[19999, 3] = np.nan, 0.5
    out = net(jnp.asarray(x))
    want = oracle(x, weights, [-0.3] * 15, [32.0] * 15)
    np.testing.assert_allclose(out.materialize(), want, atol=1e-3)
    np.testing.assert_array_equal(js.bounded.categories(out), np.flatnonzero((want != 0).any(1)))


@pytest.mark.parametrize("make", [signed, bundled, saturating])
@pytest.mark.parametrize("batch", [1, 131])
def test_state_too_wide_to_keep(implementation, rng, make, batch):
    weights, biases, uppers = make(rng, (20, 32, 24))
    wide = sp.random(7600, 24, 0.2, random_state=rng, format="csr", dtype=np.float32)
    back = sp.random(40, 7600, 0.01, random_state=rng, format="csr", dtype=np.float32)
    stack = [*weights, wide, back], [*biases, -0.01, -0.1], [*uppers, 2.0, 6.0]
    x = inputs(rng, batch, 20)
    net = js.bounded.network(layers_of(stack), implementation=implementation)
    assert net.widest > 7000
    out = net(jnp.asarray(x))
    np.testing.assert_allclose(out.materialize(), oracle(x, *stack), atol=5e-4)


@pytest.mark.parametrize("batch", [5, 200])
def test_bundles_too_wide_to_keep(implementation, rng, batch):
    # Bundles of many lengths, whole steps of eight entries or not.
    weights, biases, uppers = bundled(rng, (128, 4000, 160, 40))
    kept = sp.random(10, 4000, 0.005, random_state=rng).toarray().repeat(16, 0) != 0
    weights[1] = np.where(kept, rng.standard_normal(kept.shape), 0).astype(np.float32)
    x = inputs(rng, batch, 128)
    x[1, 3], x[2, 5], x[3, 7] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = oracle(x, weights, biases, uppers)
    layers = layers_of((weights, biases, uppers))
    net = js.bounded.network(layers, implementation=implementation)
    assert net.bundles
    assert net.widest >= 4000
    got = np.asarray(net(jnp.asarray(x)).materialize())
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], atol=2e-4)


def test_nan_and_inf_reach_only_their_outputs(implementation, rng):
    stack = saturating(rng, (24, 24, 24))
    x = inputs(rng, 6, 24)
    x[1, 3], x[2, 5], x[3, 7] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = oracle(x, *stack)
    out = js.bounded.network(layers_of(stack), implementation=implementation)(jnp.asarray(x))
    np.testing.assert_array_equal(np.isnan(out.materialize()), np.isnan(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(np.asarray(out.materialize())[finite], want[finite], atol=1e-4)


def test_empty_batch_and_widths(implementation):
    eye = js.bounded.inspect(np.eye(4), 0.0, 1.0)
    net = js.bounded.network([eye, eye], implementation=implementation)
    assert net(jnp.zeros((0, 4))).materialize().shape == (0, 4)
    with pytest.raises(ValueError, match="takes 4"):
        net(jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match="layer 1 takes 4 inputs; layer 0 has 3"):
        js.bounded.network([js.bounded.inspect(np.ones((4, 3)), 0.0, 1.0), eye])
    with pytest.raises(ValueError, match="at least one"):
        js.bounded.network([])
    with pytest.raises(TypeError, match=r"layer 0 must be a js\.bounded\.Layer"):
        js.bounded.network([np.eye(4)])


def test_a_stack_of_networks_is_named_and_repr_never_raises():
    eye = js.bounded.inspect(np.eye(4), 0.0, 1.0)
    net = js.bounded.network([eye, eye])
    assert "retires from layer" in repr(net)
    both = jax.tree.map(lambda *a: jnp.stack(a), net, net)
    shapes = jax.tree.map(lambda a: a.shape, (net, eye))
    said = [repr(both), repr(jax.eval_shape(lambda n: n, net)), repr(shapes)]
    jax.jit(lambda n: said.append(repr(n)))(net)
    jax.vmap(lambda n: said.append(repr(n)))(both)
    assert all("4 -> 4" in text for text in said)
    with pytest.raises(ValueError, match="stack of networks"):
        both(jnp.zeros((2, 4)))
    one = jax.tree.map(lambda a: a[1], both)
    np.testing.assert_array_equal(one(jnp.ones((2, 4))).materialize(), jnp.ones((2, 4)))


@pytest.mark.parametrize("fold", [True, False])
def test_other_values_drop_the_proofs(implementation, rng, fold):
    layers = [js.bounded.inspect(2 * np.eye(32), 0.0, 1.0, fold=fold) for _ in range(3)]
    net = js.bounded.network(layers, fold=fold, implementation=implementation)
    assert net.decides
    moved = net.with_values(net.weights * 1.25, jnp.full_like(net.bias, 0.1))
    assert moved.retires() == {"zero": 2, "upper": 2}
    x = jnp.asarray(rng.random((9, 32)) - 0.7, jnp.float32).at[0].set(-1.0)
    got = moved(x).materialize()
    stack = [2.5 * np.eye(32)] * 3, [0.1] * 3, [1.0] * 3
    np.testing.assert_allclose(got, oracle(np.asarray(x), *stack), atol=1e-6)
    assert (np.asarray(got[0]) > 0).all()
