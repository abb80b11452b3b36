"""Inspection: what is proven holds, what does not hold is never claimed, bad matrices are
refused."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import saturating, signed
from hypothesis import given
from hypothesis import strategies as st

import jaxsparse as js


def test_rows_fold_and_come_back(rng):
    rows = rng.standard_normal((5, 12)) * (rng.random((5, 12)) < 0.5)
    picked = rng.integers(0, 5, 40)
    bias = rng.standard_normal(5).astype(np.float32)[picked]
    layer = js.bounded.inspect(rows[picked].T, bias, 3.0)
    assert layer.distinct == len(np.unique(picked))
    assert layer.folded
    np.testing.assert_array_equal(layer.to_dense(), rows[picked].T.astype(np.float32))
    np.testing.assert_array_equal(layer.full_bias(), bias)
    assert js.bounded.inspect(rows[picked].T, bias, 3.0, fold=False).distinct == 40
    assert "outputs fold" in repr(layer)


def test_equal_rows_with_other_biases_do_not_fold():
    layer = js.bounded.inspect(np.ones((4, 3)), np.array([0.0, 0.5, 0.0]), 1.0)
    assert layer.distinct == 2


def test_unsorted_and_duplicate_entries_are_summed():
    indices, indptr = np.array([3, 0, 3, 1]), np.array([0, 3, 3, 4])
    weight = sp.csr_matrix((np.array([1.0, 2.0, 4.0, 0.0]), indices, indptr), (3, 4))
    layer = js.bounded.inspect(weight.T, 0.25, 2.0)
    want = np.zeros((3, 4))
    want[0] = [2, 0, 0, 5]
    np.testing.assert_array_equal(layer.to_dense(), want.T)
    assert weight.nnz == 4  # what came in is left as it was


@given(st.integers(0, 9), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_padding_changes_no_sum(entries, rows, seed):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((rows, 9)) * (rng.random((rows, 9)) * 9 < entries)
    layer = js.bounded.inspect(weight.T, 0.0, 1.0, fold=False)
    assert not np.any(np.diff(layer.starts) % 4)
    np.testing.assert_array_equal(layer.to_dense(), weight.T.astype(np.float32))


def test_proofs_of_the_challenge_and_of_random_weights(rng):
    (layer,) = js.bounded.radixnet(1024, 1)
    assert layer.zero_stays
    assert layer.keeps_upper(32.0)
    assert not layer.keeps_upper(16.0)
    for w, b, u in zip(*signed(rng, (40, 40, 40)), strict=True):
        found = js.bounded.inspect(w.T, b, u)
        assert not found.zero_stays
        assert found.saturates_from == np.inf


@given(st.integers(0, 2**32 - 1))
def test_a_proof_holds_in_float32(seed):
    rng = np.random.default_rng(seed)
    weights, biases, _ = saturating(rng, (12, 8))
    upper = float(rng.choice([0.5, 1.0, 6.0]))
    layer = js.bounded.inspect(weights[0].T, biases[0], upper)
    if np.isfinite(layer.saturates_from):
        v = np.float32(max(layer.saturates_from, 1e-3))
        y = js.bounded_matmul(np.full((1, 12), v, np.float32), layer).materialize()
        assert (np.asarray(y) == np.float32(upper)).all()
    z = js.bounded_matmul(np.zeros((1, 12), np.float32), layer).materialize()
    assert layer.zero_stays == (not np.asarray(z).any())


def test_a_copy_needs_no_margin():
    layer = js.bounded.inspect(np.eye(6), 0.0, 6.0)
    assert layer.keeps_upper(6.0)
    assert not layer.keeps_upper(5.999)
    tight = js.bounded.inspect(np.full((3, 2), 1 / 3), 0.0, 6.0)
    assert not tight.keeps_upper(6.0)


@pytest.mark.parametrize(
    ("weight", "bias", "upper", "kind", "text"),
    [
        (np.ones(3), 0.0, 1.0, TypeError, "weight must be a matrix"),
        (np.ones((2, 2), complex), 0.0, 1.0, TypeError, "weight has dtype complex"),
        (np.array([["a"]]), 0.0, 1.0, TypeError, "weight has dtype"),
        (np.array([[np.nan]]), 0.0, 1.0, ValueError, "weight holds NaN or Inf"),
        (np.array([[1e300]]), 0.0, 1.0, ValueError, "past float32"),
        (np.ones((2, 2)), np.zeros(3), 1.0, ValueError, r"bias has shape \(3,\).* \[2, 2\]$"),
        (np.ones((2, 3)), np.zeros(2), 1.0, ValueError, r"takes a number or \[3\].*transposed one"),
        (np.ones((2, 2)), np.inf, 1.0, ValueError, "bias holds NaN or Inf"),
        (np.ones((2, 2)), 0.0, 0.0, ValueError, "upper=0.0"),
        (np.ones((2, 2)), 0.0, -1.0, ValueError, "upper=-1.0"),
        (np.ones((2, 2)), 0.0, np.inf, ValueError, "upper=inf"),
        (np.ones((2, 2)), 0.0, 1e-60, ValueError, "not a positive float32"),
    ],
)
def test_bad_layers(weight, bias, upper, kind, text):
    with pytest.raises(kind, match=text):
        js.bounded.inspect(weight, bias, upper)


def test_indices_out_of_range():
    weight = sp.csr_matrix(np.eye(3))
    weight.indices[1] = 7
    with pytest.raises(ValueError, match="out of range"):
        js.bounded.inspect(weight, 0.0, 1.0)


def test_empty_layers():
    layer = js.bounded.inspect(np.zeros((5, 3)), np.array([-1.0, 0.5, 9.0]), 2.0)
    y = js.bounded_matmul(np.ones((2, 5), np.float32), layer).materialize()
    np.testing.assert_array_equal(y, [[0, 0.5, 2]] * 2)
    assert js.bounded.inspect(np.zeros((5, 0)), 0.0, 2.0).n_out == 0


@pytest.mark.parametrize(
    ("weight", "bias", "upper", "message"),
    [
        (np.eye(2), 0.0, "x", "upper='x'"),
        (np.eye(2), 0.0, None, "upper=None"),
        (np.eye(2), 0.0, 1j, "upper=1j"),
        (np.eye(2), "x", 1.0, "bias='x'"),
        (np.eye(2), 1j, 1.0, "bias=1j"),
        (np.eye(2), [[1.0], [1.0, 2.0]], 1.0, "bias must hold real numbers"),
        ([[1.0, 0.0]], 0.0, 1.0, r"not list$"),
        (np.ones(3), 0.0, 1.0, r"not ndarray of shape \(3,\)"),
    ],
)
def test_a_wrong_type_is_named(weight, bias, upper, message):
    with pytest.raises(TypeError, match=message):
        js.bounded.inspect(weight, bias, upper)


def test_one_layer_is_no_sequence_of_layers():
    layer = js.bounded.inspect(np.eye(2), 0.0, 1.0)
    with pytest.raises(TypeError, match=r"write \[layer\]"):
        js.bounded.network(layer)
    with pytest.raises(TypeError, match="layers must be a sequence"):
        js.bounded.network(3)


def test_activations_read_as_their_values():
    layer = js.bounded.inspect(-np.eye(3), 0.0, 1.0)
    acts = js.bounded_matmul(np.ones((2, 3), np.float32), layer)
    np.testing.assert_array_equal(np.asarray(acts), np.zeros((2, 3)))
    assert (acts.shape, acts.dtype) == ((2, 3), np.float32)
    assert "float32[2, 3]" in repr(acts)
    assert "materialize" in repr(acts)
    assert np.asarray(acts, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="are a copy"):
        acts.__array__(copy=False)
    spec = jax.eval_shape(lambda a: a, acts)
    assert "float32[2, 3]" in repr(spec)
    assert repr(jax.tree.map(lambda _: None, acts)).startswith("Activations(None")


def test_fold_is_a_bool():
    with pytest.raises(TypeError, match="fold must be a bool"):
        js.bounded.inspect(np.eye(3), 0.0, 1.0, fold="no")
