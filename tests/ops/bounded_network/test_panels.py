"""Bundles by panels: which stacks may, the first layer from the images, and results that do not
depend on it. The challenge's deep networks for the bench."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from bounded.stacks import bundled, inputs, layers_of, oracle

import jaxsparse as js
from jaxsparse.bench.challenge.deep import deep_network
from jaxsparse.bounded.pack import chain
from jaxsparse.bounded.radixnet import patterns, radixnet
from jaxsparse.core.contract import BoundedNetworkRow


def test_the_challenge_goes_by_panels_and_reads_images_as_they_are():
    for neurons in (64, 1024, 4096):
        net = js.bounded.network(radixnet(neurons, 14, fold=False), fold=False)
        assert net.bundles == 3


def shuffled(rng, neurons, entries):
    """A layer of bundles with `entries` inputs each, anywhere."""
    weight = np.zeros((neurons, neurons), np.float32)
    for first in range(0, neurons, 16):
        chosen = rng.choice(neurons, entries, replace=False)
        weight[first : first + 16, chosen] = rng.standard_normal((16, entries)) / 4
    return weight


@pytest.mark.parametrize(
    ("neurons", "entries", "ways"),
    [(64, 32, 3), (1024, 4, 2), (1024, 32, 1), (256, 36, 1)],
)
def test_inputs_of_a_panel_decide(rng, neurons, entries, ways):
    weights = [shuffled(rng, neurons, entries) for _ in range(2)]
    layers = [js.bounded.inspect(w.T, 0.0, 1.0) for w in weights]
    assert js.bounded.network(layers).bundles == ways


def test_a_layer_without_bundles_ends_it(rng):
    net = js.bounded.network(layers_of(bundled(rng, (33, 64, 48, 160, 40))))
    assert net.bundles == 1


@pytest.mark.parametrize(("images", "entries"), [(1, 12), (63, 4), (130, 8), (17000, 12)])
def test_ways_agree(implementation, rng, images, entries):
    if implementation != "cuda" and images >= 130:
        pytest.skip("other ways are the GPU's")
    neurons = 4096 if images == 130 else 256
    weights = [np.abs(shuffled(rng, neurons, entries)) for _ in range(4)]
    stack = weights, [-0.1, -0.4, 0.0, -0.2], [1.0, 2.0, 1.0, 4.0]
    net = js.bounded.network(layers_of(stack), implementation=implementation)
    assert net.bundles >= 2
    x = inputs(rng, images, neurons)
    x[0, 5], x[-1, 7] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        want = oracle(x, *stack)
    for ways in range(1, net.bundles + 1):
        got = np.asarray(dataclasses.replace(net, bundles=ways)(jnp.asarray(x)).materialize())
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        finite = np.isfinite(want)
        np.testing.assert_allclose(got[finite], want[finite], atol=2e-5)


def test_rows_that_leave_while_panels_run(implementation, rng):
    if implementation == "reference":
        pytest.skip("the reference has one way")
    # Differences double from layer to layer until the bounds take them back.
    weights = list(patterns(256, 20))
    net = js.bounded.network(
        radixnet(256, 20, fold=False), fold=False, implementation=implementation
    )
    x = (rng.random((17011, 256)) < rng.uniform(0, 0.6, (17011, 1))).astype(np.float32)
    out = net(jnp.asarray(x))
    want = oracle(x, weights, [-0.3] * 20, [32.0] * 20)
    codes = np.asarray(out.recorder.codes)[:, 0]
    np.testing.assert_array_equal(codes == js.recorder.ZERO, (want == 0).all(1))
    np.testing.assert_array_equal(codes == js.recorder.UPPER, (want == 32).all(1))


@pytest.mark.parametrize("depth", [10, 34, 50])
def test_deep_networks_are_the_challenges(implementation, rng, depth):
    if implementation == "reference":
        pytest.skip("slow, and the same network")
    head = chain(radixnet(256, min(depth, 34), fold=False), False)
    net = dataclasses.replace(deep_network(head, 256, depth), implementation=implementation)
    same = js.bounded.network(radixnet(256, depth, fold=False), fold=False)
    assert net.shapes == same.shapes
    for name in ("table", "starts", "weights", "bias", "uppers"):
        np.testing.assert_array_equal(getattr(net, name), getattr(same, name))
    x = jnp.asarray(rng.random((70, 256)) < rng.uniform(0, 0.6, (70, 1)), jnp.float32)
    np.testing.assert_array_equal(net(x).materialize(), same(x).materialize())
    open_ended = dataclasses.replace(
        net, table=net.table.at[:, BoundedNetworkRow.RETIRES].set(0), decides=False
    )
    again = dataclasses.replace(
        same, table=same.table.at[:, BoundedNetworkRow.RETIRES].set(0), decides=False
    )
    np.testing.assert_allclose(open_ended(x).values, again(x).values, atol=1e-3)


def test_a_deep_network_takes_the_challenges_head(rng):
    head = chain(layers_of(bundled(rng, (64, 64, 64))), False)
    with pytest.raises(ValueError, match="does not hold the challenge's first layers"):
        deep_network(head, 64, 50)
