"""Layers of few images, which a GPU deals out to blocks and clusters of a segment's outputs."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import oracle

import jaxsparse as js


def layer_of(rng, n_in, n_out, density, upper=1.0):
    """Signed weights; of the outputs a first third is zero, a last third at the bound, whatever
    comes in."""
    weight = sp.random(n_out, n_in, density, random_state=rng, dtype=np.float32, format="csr")
    weight.data = (rng.standard_normal(weight.nnz) / np.sqrt(max(density * n_in, 1))).astype("f4")
    bias = (rng.standard_normal(n_out) * 0.3).astype(np.float32)
    bias[: n_out // 3], bias[2 * n_out // 3 :] = -50, 50
    return weight, bias, upper


@pytest.mark.parametrize("images", [1, 2, 9, 64, 300])
@pytest.mark.parametrize(
    ("n_in", "n_out", "density"),
    [(1, 1, 1.0), (30, 70, 0.3), (301, 2500, 0.02), (700, 1001, 0.3), (500, 3072, 0.4)],
)
@pytest.mark.parametrize("segment", [None, 7, 300])
def test_values_and_codes(implementation, rng, images, n_in, n_out, density, segment):
    if implementation == "reference" and images * n_out > 30_000:
        pytest.skip("the reference deals nothing out: it is one rule for any number of images")
    given = layer_of(rng, n_in, n_out, density)
    layer = js.bounded.inspect(given[0].T, *given[1:])
    x = rng.random((images, n_in)).astype(np.float32)
    run = jax.jit(
        lambda x, layer: js.bounded_matmul(x, layer, segment=segment, implementation=implementation)
    )
    acts = run(x, layer)
    want = oracle(x, *([part] for part in given))
    np.testing.assert_allclose(acts.materialize(), want, atol=1e-4)
    exact = js.recorder.probe(acts.materialize(), acts.recorder.segment, 1.0).codes
    np.testing.assert_array_equal(acts.recorder.codes, exact)
    known = js.bounded_matmul(
        js.bounded.Activations.plain(x), layer, segment=segment, implementation=implementation
    )
    np.testing.assert_array_equal(known.materialize(), acts.materialize())
    np.testing.assert_array_equal(known.recorder.codes, acts.recorder.codes)


@pytest.mark.parametrize("images", [1, 40])
def test_outputs_that_share_rows(implementation, rng, images):
    """Folded: 48 outputs are 12 distinct rows."""
    weight, bias, upper = layer_of(rng, 60, 12, 0.2)
    given = sp.csr_matrix(np.repeat(weight.toarray(), 4, 0)), np.repeat(bias, 4), upper
    layer = js.bounded.inspect(given[0].T, *given[1:])
    assert layer.distinct < layer.n_out
    x = rng.random((images, 60)).astype(np.float32)
    got = js.bounded_matmul(x, layer, segment=5, implementation=implementation)
    want = oracle(x, *([part] for part in given))
    np.testing.assert_allclose(got.materialize(), want, atol=1e-5)


@pytest.mark.parametrize("dataflow", [None, "row", "slab", "column"])
def test_nan_stays_where_it_has_an_entry(implementation, rng, dataflow):
    weight, bias, upper = layer_of(rng, 20, 40, 0.2)
    layer = js.bounded.inspect(weight.T, bias, upper)
    x = rng.random((3, 20)).astype(np.float32)
    x[1, 4] = np.nan
    acts = js.bounded_matmul(x, layer, dataflow=dataflow, implementation=implementation)
    hit = np.zeros((3, 40), bool)
    hit[1] = weight.toarray()[:, 4] != 0
    np.testing.assert_array_equal(np.isnan(acts.materialize()), hit)
