"""One saturated layer: values and codes against float64, for any weights, with every dataflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import blinking, inputs, layers_of, oracle, saturating, signed

import jaxsparse as js

DATAFLOWS = [None, "row", "slab", "column", "converged"]
STACKS = {
    "signed": lambda rng: signed(rng, (33, 50, 17, 40)),
    "saturating": lambda rng: saturating(rng, (48, 64, 40, 64, 64)),
    "blinking": lambda rng: blinking(24),
}


@pytest.fixture
def way(implementation, request):
    """A dataflow of the CUDA kernels; the others have one way."""
    if implementation != "cuda" and request.param not in (None, "converged"):
        pytest.skip("dataflows are the GPU's")
    return request.param


def exact_codes(values, segment, upper):
    pieces = [values[:, i : i + segment] for i in range(0, values.shape[1], segment)]
    zero = np.stack([(p == 0).all(1) for p in pieces], 1)
    full = np.stack([(p == upper).all(1) for p in pieces], 1)
    return np.where(zero, 1, np.where(full, 2, 0))


def check_codes(stack, x, way, segment, implementation):
    """Layer by layer: values near the oracle's, exact codes, and what they stand for not read."""
    acts = jnp.asarray(x)
    for i, layer in enumerate(layers_of(stack)):
        acts = js.bounded_matmul(
            acts, layer, dataflow=way, segment=segment, implementation=implementation
        )
        got = np.asarray(acts.materialize())
        want = oracle(x, *(part[: i + 1] for part in stack))
        np.testing.assert_allclose(got, want, atol=1e-5 * (i + 1) * 8)
        codes = exact_codes(got, acts.recorder.segment, np.float32(stack[2][i]))
        np.testing.assert_array_equal(acts.recorder.codes, codes)
        known = np.asarray(acts.recorder.spread(got.shape[1])) != 0
        acts = js.bounded.Activations(jnp.where(known, jnp.nan, acts.values), acts.recorder)


@pytest.mark.parametrize("segment", [None, 1, 5, 32])
@pytest.mark.parametrize("way", DATAFLOWS, indirect=True)
@pytest.mark.parametrize("name", STACKS)
def test_codes_are_exact_layer_by_layer(implementation, rng, name, way, segment):
    stack = STACKS[name](rng)
    x = inputs(rng, 45, stack[0][0].shape[1])
    check_codes(stack, x, way, segment, implementation)


def half_zero(rng):
    """A layer between wide ones half of whose outputs are zero."""
    weights, biases, uppers = signed(rng, (60, 4000, 50), 0.02)
    biases[0][:2000] = -9.0
    return weights, biases, uppers


@pytest.mark.parametrize("segment", [None, 5, 32])
@pytest.mark.parametrize("name", ["saturating", "blinking", "wide"])
@pytest.mark.parametrize("way", [None, "column"], indirect=True)
def test_codes_of_many_images(implementation, rng, name, way, segment):
    # Blocks of eight images: decided rows, whole rows under a code, parts of rows, values.
    stack = half_zero(rng) if name == "wide" else STACKS[name](rng)
    x = inputs(rng, 1100, stack[0][0].shape[1])
    check_codes(stack, x, way, segment, implementation)


@pytest.mark.parametrize("way", [None, "row", "slab", "column"], indirect=True)
@pytest.mark.parametrize(("outputs", "segment"), [(400_000, 400_000), (60_000, 1), (30_000, None)])
def test_segments_that_are_hard_to_note(implementation, rng, way, outputs, segment):
    weight = sp.random(outputs, 64, 4 / 64, random_state=rng, dtype=np.float32, format="csr")
    layer = js.bounded.inspect(weight.T, rng.choice([-9.0, 0.0], outputs), 1.0)
    x = inputs(rng, 600 if outputs == 30_000 else 5, 64)
    acts = js.bounded_matmul(
        jnp.asarray(x), layer, dataflow=way, segment=segment, implementation=implementation
    )
    got = np.asarray(acts.materialize())
    np.testing.assert_allclose(got, oracle(x, [weight], [layer.full_bias()], [1.0]), atol=1e-4)
    codes = exact_codes(got, acts.recorder.segment, np.float32(1.0))
    np.testing.assert_array_equal(acts.recorder.codes, codes)


@pytest.mark.parametrize("way", DATAFLOWS, indirect=True)
def test_without_recorder(implementation, rng, way):
    stack = saturating(rng, (40, 64, 64))
    x = inputs(rng, 20, 40)
    acts = jnp.asarray(x)
    for layer in layers_of(stack):
        acts = js.bounded_matmul(
            acts, layer, dataflow=way, record=False, implementation=implementation
        )
        assert not np.asarray(acts.recorder.codes).any()
    np.testing.assert_allclose(acts.values, oracle(x, *stack), atol=1e-4)


@pytest.mark.parametrize("way", ["row", "slab", "column", "converged"], indirect=True)
def test_wide_layer_in_slabs(implementation, rng, way):
    weight = sp.random(3000, 2100, 0.004, random_state=rng, dtype=np.float32, format="csr")
    weight.data = np.abs(weight.data)
    layer = js.bounded.inspect(weight.T, rng.choice([-0.1, 0.0, 2.0], 3000), 0.5)
    x = inputs(rng, 19, 2100)
    x[3] = 0
    for record, segment in ((True, 100), (True, None), (False, None)):
        acts = js.bounded_matmul(
            jnp.asarray(x),
            layer,
            dataflow=way,
            record=record,
            segment=segment,
            implementation=implementation,
        )
        want = oracle(x, [weight], [layer.full_bias()], [0.5])
        np.testing.assert_allclose(acts.materialize(), want, atol=1e-5)


def test_inputs_past_16_bits(implementation, rng):
    columns = rng.integers(0, 70000, (40, 6))
    weight = sp.csr_matrix(
        (rng.standard_normal(240), (np.repeat(np.arange(40), 6), columns.ravel())), (40, 70000)
    )
    layer = js.bounded.inspect(weight.T, 0.1, 2.0)
    assert layer.indices.dtype == np.int32
    x = inputs(rng, 9, 70000)
    for dataflow in DATAFLOWS if implementation == "cuda" else [None]:
        acts = js.bounded_matmul(
            jnp.asarray(x), layer, dataflow=dataflow, implementation=implementation
        )
        np.testing.assert_allclose(acts.materialize(), oracle(x, [weight], [0.1], [2.0]), atol=1e-5)


def test_scan_over_stacked_layers(implementation, rng):
    stack = saturating(rng, (32, 32, 32, 32, 32))
    x = inputs(rng, 10, 32)
    stacked = jax.tree.map(jnp.asarray, js.bounded.stack(layers_of(stack)))
    first = js.bounded_matmul(
        jnp.asarray(x), layers_of(stack)[0], segment=8, implementation=implementation
    )
    rest = jax.tree.map(lambda v: v[1:], stacked)

    @jax.jit
    def run(acts, layers):
        def step(acts, layer):
            return js.bounded_matmul(acts, layer, segment=8, implementation=implementation), None

        return jax.lax.scan(step, acts, layers)[0]

    np.testing.assert_allclose(run(first, rest).materialize(), oracle(x, *stack), atol=1e-4)
