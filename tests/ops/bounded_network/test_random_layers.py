"""Random stacks: widths, segments, bounds and signs as hypothesis draws them, on what runs here."""

import itertools

import jax.numpy as jnp
import numpy as np
from bounded.stacks import inputs, layers_of, oracle
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsparse as js

WIDTHS = st.lists(st.integers(1, 70), min_size=2, max_size=5)
BOUNDS = st.sampled_from([0.25, 1.0, 6.0, 32.0])


def drawn_stack(rng, widths, uppers, signed, group):
    """Signed or non-negative, sparse or dense, with or without groups of equal inputs."""
    weights, biases = [], []
    for n_in, n_out in itertools.pairwise(widths):
        rows = -(-n_out // group)
        pattern = np.repeat(rng.random((rows, n_in)) < rng.uniform(0.05, 1), group, 0)[:n_out]
        values = rng.standard_normal((n_out, n_in)) * 2 / np.sqrt(n_in)
        weights.append(np.where(pattern, values if signed else np.abs(values), 0).astype("f4"))
        biases.append((rng.standard_normal(n_out) * rng.choice([0.0, 0.3, 3.0])).astype("f4"))
    return weights, biases, uppers


def scale_of(stack):
    """How much a stack may amplify a rounding."""
    return np.prod([1 + np.abs(w).sum(1).max(initial=0.0) for w in stack[0]])


@settings(max_examples=15, deadline=None)
@given(
    widths=WIDTHS,
    upper=BOUNDS,
    segment=st.integers(1, 80),
    signed=st.booleans(),
    record=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_layers(widths, upper, segment, signed, record, seed):
    rng = np.random.default_rng(seed)
    stack = drawn_stack(rng, widths, [upper] * (len(widths) - 1), signed, 1)
    x = inputs(rng, int(rng.integers(1, 40)), widths[0])
    acts = jnp.asarray(x)
    for layer in layers_of(stack):
        acts = js.bounded_matmul(acts, layer, segment=segment, record=record)
        if record:
            values = acts.materialize()
            want = js.recorder.probe(values, acts.recorder.segment, upper).codes
            np.testing.assert_array_equal(acts.recorder.codes, want)
    limit = 1e-6 * max(upper, 1) * min(scale_of(stack), 1e4)
    np.testing.assert_allclose(acts.materialize(), oracle(x, *stack), atol=limit, rtol=0)


@settings(max_examples=15, deadline=None)
@given(
    widths=WIDTHS,
    upper=BOUNDS,
    signed=st.booleans(),
    fold=st.booleans(),
    group=st.sampled_from([1, 3, 16, 24]),
    seed=st.integers(0, 2**32 - 1),
)
def test_networks(widths, upper, signed, fold, group, seed):
    rng = np.random.default_rng(seed)
    stack = drawn_stack(rng, widths, [upper] * (len(widths) - 1), signed, group)
    x = inputs(rng, int(rng.integers(1, 40)), widths[0])
    out = js.bounded.network(layers_of(stack, fold=fold), fold=fold)(jnp.asarray(x))
    limit = 1e-6 * max(upper, 1) * min(scale_of(stack), 1e4)
    np.testing.assert_allclose(out.materialize(), oracle(x, *stack), atol=limit, rtol=0)
