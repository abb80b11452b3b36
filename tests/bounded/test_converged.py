"""The converged dataflow: equal rows share one computation, and nothing else does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bounded.stacks import blinking, inputs, layers_of, oracle, saturating, signed
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from jaxsparse.bounded.converged import gather_centroids

STACKS = {
    "signed": lambda rng: signed(rng, (24, 30, 20, 24)),
    "saturating": lambda rng: saturating(rng, (32, 32, 32, 32, 32)),
    "blinking": lambda rng: blinking(24),
}


@pytest.mark.parametrize("threshold", [0, 1, 99])
@pytest.mark.parametrize("name", STACKS)
def test_exact_at_tolerance_0(implementation, rng, name, threshold):
    stack = STACKS[name](rng)
    x = inputs(rng, 50, stack[0][0].shape[1])
    x[10:30] = x[0]
    run = js.bounded.converged(
        layers_of(stack), threshold=threshold, centroids=4, implementation=implementation
    )
    out = jax.jit(run)(jnp.asarray(x))
    np.testing.assert_allclose(out.materialize(), oracle(x, *stack), atol=2e-4)


def test_a_tolerance_lets_near_rows_share(rng):
    values = jnp.asarray(inputs(rng, 6, 8)) + 1.0
    near = values.at[3].set(values[0] + 1e-3)
    assert not bool(gather_centroids(near, 1, 0.0).empty[3])
    state = gather_centroids(near, 1, 1e-2)
    assert bool(state.empty[3])
    np.testing.assert_array_equal(state.materialize()[3], near[0])
    assert not bool(gather_centroids(near.at[3, 0].set(jnp.nan), 1, 1e9).empty[3])


def test_bad_arguments():
    layer = js.bounded.inspect(np.eye(2), 0.0, 1.0)
    for options in ({"threshold": -1}, {"tolerance": -0.5}, {"centroids": 0}):
        with pytest.raises(ValueError, match="they take"):
            js.bounded.converged([layer], **options)
    with pytest.raises(ValueError, match="at least one"):
        js.bounded.converged([])


@pytest.mark.parametrize("threshold", [0, 1, 3])
def test_no_images(threshold):
    layers = [js.bounded.inspect(np.ones(s), 0.0, 1.0) for s in ((6, 4), (3, 6), (7, 3))]
    run = js.bounded.converged(layers, threshold=threshold)
    assert run(jnp.zeros((0, 4))).values.shape == (0, 7)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
def test_shard_map_over_images(implementation, rng):
    layers = layers_of(saturating(rng, (16, 32, 32, 24)))
    x = jnp.asarray(inputs(rng, 32, 16))
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("data",), auto, devices=jax.devices()[:4])
    for chosen in (implementation, None):
        run = js.bounded.converged(layers, threshold=1, centroids=4, implementation=chosen)
        spread = jax.shard_map(run, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
        got = jax.jit(lambda x, f=spread: f(x).materialize())(x)
        np.testing.assert_allclose(got, run(x).materialize(), atol=1e-5)


def test_bad_images():
    run = js.bounded.converged([js.bounded.inspect(np.eye(4), 0.0, 1.0)])
    for acts, kind, text in (
        ([1.0], TypeError, "acts must be an array"),
        (np.ones((2, 4)), TypeError, "acts has dtype float64"),
        (jnp.ones(4), ValueError, "acts has shape"),
        (jnp.ones((2, 5)), ValueError, "acts has 5 columns; layer 0 takes 4"),
    ):
        with pytest.raises(kind, match=text):
            run(acts)
    with pytest.raises(TypeError, match="one Layer: write"):
        js.bounded.converged(js.bounded.inspect(np.eye(4), 0.0, 1.0))
    with pytest.raises(ValueError, match="implementation"):
        js.bounded.converged([js.bounded.inspect(np.eye(4), 0.0, 1.0)], implementation="tpu")
