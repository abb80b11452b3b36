"""The converged dataflow: equal rows share one computation, and nothing else does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bounded.stacks import blinking, inputs, layers_of, oracle, saturating, signed

import jaxsparse as js
from jaxsparse.ops.bounded_matmul.converged import gather_centroids

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


@pytest.mark.parametrize("threshold", [0, 1, 3])
def test_no_images(threshold):
    layers = [js.bounded.inspect(np.ones(s), 0.0, 1.0) for s in ((4, 6), (6, 3), (3, 7))]
    run = js.bounded.converged(layers, threshold=threshold)
    assert run(jnp.zeros((0, 4))).values.shape == (0, 7)
