"""Inspection: what becomes of a weight, its statistics, parts, bad weights, real patterns."""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.experimental import sparse

import jaxsparse as js
from jaxsparse.pruned.parts import UNIT, imbalance, share_out
from jaxsparse.pruned.pattern import Pattern


def pruned_weight(rng, shape=(50, 70), sparsity=0.8):
    w = rng.standard_normal(shape).astype(np.float32)
    return np.where(js.prune.magnitude(w, sparsity), w, 0).astype(np.float32)


@pytest.mark.parametrize("shape", [(50, 70), (1, 1), (0, 5), (5, 0), (7, 1)])
@pytest.mark.parametrize("sparsity", [0.0, 0.8, 1.0])
def test_there_and_back(rng, shape, sparsity):
    w = pruned_weight(rng, shape, sparsity)
    for given in (w, jnp.asarray(w), sp.csr_matrix(w), sp.coo_matrix(w), w.astype(np.float64)):
        pruned = js.pruned.inspect(given)
        np.testing.assert_array_equal(pruned.to_dense(), w)
        assert pruned.shape == shape
    assert js.pruned.inspect(w).plan == js.pruned.inspect(w).plan
    assert hash(js.pruned.inspect(w).plan) == hash(js.pruned.inspect(w).plan)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv_there_and_back(rng, groups):
    w = pruned_weight(rng, (3, 2, 8, 12))
    pruned = js.pruned.inspect(w, kind="conv", groups=groups)
    np.testing.assert_array_equal(pruned.to_dense(), w)
    assert pruned.pattern.channels == 8 * groups
    assert abs(pruned.sparsity - (w == 0).mean()) < 1e-12
    back, order = pruned.pattern.transposed
    again, _ = back.transposed
    assert again == pruned.pattern
    assert sorted(order) == list(range(pruned.pattern.entries))


def test_mask_keeps_zeros(rng):
    w = pruned_weight(rng)
    mask = rng.random(w.shape) < 0.3
    pruned = js.pruned.inspect(w, mask=mask)
    assert pruned.pattern.entries == mask.sum()
    np.testing.assert_array_equal(pruned.to_dense(), np.where(mask, w, 0))


def test_a_pytree_with_one_leaf(rng):
    pruned = js.pruned.inspect(pruned_weight(rng))
    assert len(jax.tree.leaves(pruned)) == 1
    doubled = jax.tree.map(lambda v: 2 * v, pruned)
    assert doubled.plan == pruned.plan
    np.testing.assert_array_equal(doubled.to_dense(), 2 * pruned.to_dense())
    assert "80.0 % pruned" in repr(pruned)
    several = jax.tree.map(lambda v: jnp.stack([v, 3 * v]), pruned)
    assert "[2] of [50, 70]" in repr(several)
    np.testing.assert_array_equal(several.to_dense()[1], 3 * pruned.to_dense())
    with pytest.raises(ValueError, match="keeps"):
        pruned.with_values(jnp.zeros(3))
    with pytest.raises(ValueError, match="plan is of"):
        pruned.from_dense(jnp.zeros((3, 3)))


def test_gradient_of_a_dense_kernel_is_zero_where_it_is_pruned(rng):
    w = pruned_weight(rng)
    pruned = js.pruned.inspect(w)
    got = jax.grad(lambda w: jnp.sum(pruned.from_dense(w).values ** 2))(jnp.asarray(w))
    np.testing.assert_allclose(got, 2 * w, rtol=1e-6)


@pytest.mark.parametrize("dtype", [int, np.float64, "bf", None])
def test_a_dtype_that_values_cannot_have(rng, dtype):
    with pytest.raises(TypeError, match=r"dtype=.*; it takes float32, bfloat16 or float16"):
        js.pruned.inspect(pruned_weight(rng)).astype(dtype)


def test_from_dense_takes_what_inspection_takes(rng):
    w = pruned_weight(rng)
    pruned = js.pruned.inspect(w)
    assert pruned.from_dense(w.astype(np.float64)).dtype == np.float32
    np.testing.assert_array_equal(pruned.from_dense(2.0 * w.astype(np.float64)).to_dense(), 2 * w)
    with jax.enable_x64(True):
        wide = jax.jit(lambda w: pruned.from_dense(w).values)(jnp.asarray(w, jnp.float64))
    assert wide.dtype == np.float32
    for bad, words in (
        (w.tolist(), "weight must be an array, not list"),
        (sp.csr_matrix(w), "weight is a sparse csr_matrix"),
        (np.ma.masked_array(w, w == 0), "weight is a masked array"),
        (w.astype(int), "weight has dtype int"),
    ):
        with pytest.raises(TypeError, match=words):
            pruned.from_dense(bad)


TAKEN = {
    "BCOO": sparse.BCOO.fromdense,
    "BCSR": sparse.BCSR.fromdense,
    "padded": lambda w: sparse.BCOO.fromdense(w, nse=w.size + 9),
    "unsorted": lambda w: (lambda m: sparse.BCOO((m.data[::-1], m.indices[::-1]), shape=m.shape))(
        sparse.BCOO.fromdense(w)
    ),
    "scipy": sp.coo_matrix,
}


@pytest.mark.parametrize("what", TAKEN)
def test_sparse_matrices_are_taken(rng, what):
    w = pruned_weight(rng)
    found = js.pruned.inspect(TAKEN[what](w))
    assert found.plan == js.pruned.inspect(w).plan
    np.testing.assert_array_equal(found.to_dense(), w)
    layer = js.bounded.inspect(TAKEN[what](w), 0.0, 1.0)
    np.testing.assert_array_equal(layer.to_dense(), w)


def test_a_jax_matrix_keeps_its_dtype(rng):
    w = jnp.asarray(pruned_weight(rng), jnp.bfloat16)
    for found in (sparse.BCOO.fromdense(w), sparse.BCSR.fromdense(w)):
        pruned = js.pruned.inspect(found)
        assert pruned.values.dtype == jnp.bfloat16
        np.testing.assert_array_equal(pruned.to_dense(), w)


def test_sparse_matrices_with_other_axes_are_refused(rng):
    w = pruned_weight(rng)
    for make, words in (
        (lambda: sparse.BCOO.fromdense(w[None], n_batch=1), "without batch and dense axes"),
        (lambda: sparse.BCOO.fromdense(w, n_dense=1), "without batch and dense axes"),
        (lambda: sparse.CSR.fromdense(w), "is a sparse CSR; it takes BCOO"),
    ):
        for call in (js.pruned.inspect, lambda given: js.bounded.inspect(given, 0.0, 1.0)):
            with pytest.raises(TypeError, match=words):
                call(make())
    with pytest.raises(TypeError, match="w is traced"):
        jax.jit(js.pruned.inspect)(sparse.BCOO.fromdense(w))
    with pytest.raises(ValueError, match=r"sparse BCOO, which takes kind='matmul' and no mask"):
        js.pruned.inspect(sparse.BCOO.fromdense(w), kind="conv")
    with pytest.raises(TypeError, match=r"b is a sparse BCOO; .*todense.*js\.pruned\.inspect"):
        js.masked_matmul(w.T, sparse.BCOO.fromdense(w))


SPARSE = {
    "1-D": lambda w: sparse.BCOO.fromdense(w[0]),
    "scipy": sp.csr_matrix,
    "masked": lambda w: np.ma.masked_array(w, w == 0),
    "shape": lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype),
}


@pytest.mark.parametrize("what", SPARSE)
def test_what_numpy_would_misread_is_refused(rng, what):
    w = pruned_weight(rng)
    given = SPARSE[what](w)
    words = "(is a sparse|is a masked array|is a ShapeDtypeStruct|is a BCOO).*; it takes a"
    with pytest.raises(TypeError, match=f"w {words}"):
        js.prune.magnitude(given, 0.5)
    with pytest.raises(TypeError, match=f"mask {words}"):
        js.pruned.inspect(w, mask=given)
    if what != "scipy":
        with pytest.raises(TypeError, match=f"w {words}"):
            js.pruned.inspect(given)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(rng, bad):
    w = pruned_weight(rng)
    w[3, 4] = bad
    for given in (w, sp.csr_matrix(w), w.astype(jnp.bfloat16)):
        with pytest.raises(ValueError, match="NaN or Inf"):
            js.pruned.inspect(given)
    if np.isnan(bad):
        with pytest.raises(ValueError, match="NaN"):
            js.prune.magnitude(w, 0.5)


def test_bad_weights(rng):
    w = pruned_weight(rng)
    broken = sp.csr_matrix(w)
    broken.indices[0] = 1000
    cases = [
        (TypeError, "axes", lambda: js.pruned.inspect(w[0])),
        (TypeError, "axes", lambda: js.pruned.inspect(w, kind="conv")),
        (TypeError, "dtype", lambda: js.pruned.inspect(w.astype(np.int32))),
        (ValueError, "kind", lambda: js.pruned.inspect(w, kind="dense")),
        (ValueError, "mask", lambda: js.pruned.inspect(w, mask=np.ones((3, 3), bool))),
        (
            TypeError,
            "mask is traced",
            lambda: jax.jit(lambda m: js.pruned.inspect(w, mask=m))(w != 0),
        ),
        (TypeError, "2 axes", lambda: js.pruned.inspect(sp.coo_array(w[0]))),
        (ValueError, "groups=2", lambda: js.pruned.inspect(w, groups=2)),
        (ValueError, "groups=2", lambda: js.pruned.inspect(sp.csr_matrix(w), groups=2)),
        (
            ValueError,
            "groups",
            lambda: js.pruned.inspect(np.ones((1, 1, 2, 5), "f4"), kind="conv", groups=2),
        ),
        (ValueError, "sparsity", lambda: js.prune.magnitude(w, 1.5)),
        (ValueError, "granularity", lambda: js.prune.magnitude(w, 0.5, (0, 1))),
        (ValueError, "ascend", lambda: Pattern(5, 1, [0, 2], [3, 1])),
        (ValueError, "out of range", lambda: Pattern(5, 1, [0, 1], [5])),
        (ValueError, "indptr", lambda: Pattern(5, 2, [0, 2, 1], [1])),
        (ValueError, "window", lambda: Pattern(5, 1, [0, 0], [], (2, 2))),
        (ValueError, "1 or more", lambda: Pattern(5, 1, [0, 0], [], (0, 3))),
        (
            ValueError,
            "1 or more",
            lambda: js.pruned.inspect(np.ones((0, 3, 4, 4), "f4"), kind="conv"),
        ),
        (ValueError, "out of range", lambda: Pattern(8, 1, [0, 1], [2**32 + 3])),
        (ValueError, "out of range", lambda: Pattern(8, 1, [0, 2**32 + 1], [3])),
        (ValueError, "integers", lambda: Pattern(8, 1, [0, 1], [2.5])),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()


def test_what_float32_cannot_hold_is_refused_without_a_warning():
    for given in (np.array([[1e300, 1.0]]), sp.csr_matrix(np.array([[1e300, 1.0]]))):
        with pytest.raises(ValueError, match="NaN or Inf"):
            js.pruned.inspect(given)


def test_arrays_of_the_caller_stay_his(rng):
    indptr, indices = np.array([0, 1], np.int32), np.array([3], np.int32)
    pattern = Pattern(5, 1, indptr, indices)
    indices[0] = 4
    assert pattern.indices[0] == 3
    assert not pattern.indices.flags.writeable


@pytest.mark.parametrize("granularity", [(1, 1), (1, 8), (8, 1), (3, 7)])
def test_magnitude(rng, granularity):
    w = rng.standard_normal((24, 56)).astype(np.float32)
    kept = js.prune.magnitude(w, 0.75, granularity)
    rows, columns = granularity
    blocks = kept[::rows, ::columns]
    np.testing.assert_array_equal(kept, np.kron(blocks, np.ones(granularity, bool))[:24, :56])
    assert blocks.sum() == blocks.size - round(0.75 * blocks.size)
    kernel = rng.standard_normal((3, 3, 8, 16))
    assert js.prune.magnitude(kernel, 0.9).shape == kernel.shape
    if granularity == (1, 1):
        assert np.abs(w[kept]).min() >= np.abs(w[~kept]).max()


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts(rng, parts):
    lengths = rng.integers(0, 100, 203) * (rng.random(203) < 0.8)
    bounds = share_out(lengths, parts)
    assert len(bounds) == parts + 1
    assert (bounds[0], bounds[-1]) == (0, 203)
    assert (np.diff(bounds) > 0).all()
    assert (bounds[:-1] % UNIT == 0).all()
    assert imbalance(rng.integers(1, 50, 2000), 8) < 1.05
    assert (share_out(np.zeros(0, np.int64), parts) == 0).all()


def test_statistics():
    w = np.zeros((16, 24), np.float32)
    w[0, :8] = 1.0
    w[3, 5] = 2.0
    found = js.pruned.statistics(js.pruned.inspect(w))
    assert (found.kept, found.shortest, found.longest, found.empty_rows) == (9, 0, 2, 16)
    assert found.vector_fill == 9 / 16
    assert found.used_columns == 2 / 16
    assert "9 kept" in str(found)
    assert found.imbalance is None  # 24 outputs are too few for 8 parts
    assert "parts" not in str(found)
    even = js.pruned.statistics(js.pruned.inspect(np.ones((4, 128), np.float32)))
    assert even.imbalance == 1
    assert "8 parts within 0.0 % of the mean" in str(even)
    with pytest.raises(TypeError, match="pruned must be a PrunedWeight, not ndarray"):
        js.pruned.statistics(w)
    assert js.pruned.statistics(js.pruned.inspect(np.zeros((3, 0), np.float32))).kept == 0


def test_inspection_takes_less_than_a_second(rng):
    w = pruned_weight(rng, (2048, 512), 0.9)
    start = time.perf_counter()
    pruned = js.pruned.inspect(w)
    js.pruned.statistics(pruned)
    assert time.perf_counter() - start < 1.0


REAL = Path(os.environ.get("JAXSPARSE_DATA", "/nonexistent"), "dlmc", "rn50_magnitude_0.9.npz")


@pytest.mark.skipif(not REAL.exists(), reason=f"JAXSPARSE_DATA holds no {REAL.name}")
def test_real_patterns(rng):
    data = np.load(REAL)
    for name in ("bottleneck_1_block_group3_1_1", "bottleneck_2_block_group1_1_1", "final_dense"):
        shape = tuple(data[f"{name}/shape"])
        indices = data[f"{name}/indices"].astype(np.int32)
        csr = sp.csr_matrix((np.ones(len(indices), "f4"), indices, data[f"{name}/indptr"]), shape)
        csr.data[:] = rng.standard_normal(len(indices))
        pruned = js.pruned.inspect(csr.T)
        x = rng.standard_normal((49, shape[1])).astype(np.float32)
        with jax.default_matmul_precision("highest"):  # a GPU's default is TF32
            got = js.pruned_matmul(x, pruned)
        np.testing.assert_allclose(got, x @ csr.T.toarray(), atol=2e-3)


def test_arguments_of_magnitude_are_named():
    w = np.ones((4, 4), np.float32)
    for given, kind, text in (
        ((np.array(["a"]), 0.5), TypeError, "w has dtype"),
        ((w, "a"), TypeError, "sparsity='a'"),
        ((w, True), TypeError, "sparsity=True"),
        ((w, 1.5), ValueError, "sparsity=1.5"),
        ((w, 0.5, 4), TypeError, "granularity=4"),
        ((w, 0.5, (1.5, 1)), TypeError, "granularity="),
        ((w, 0.5, (0, 1)), ValueError, "granularity="),
    ):
        with pytest.raises(kind, match=text):
            js.prune.magnitude(*given)
    for call in (js.pruned.inspect, lambda w: js.prune.magnitude(w, 0.5)):
        with pytest.raises(TypeError, match="w is traced"):
            jax.jit(call)(jnp.ones((4, 4)))
    plan = js.pruned.inspect(w)
    with pytest.raises(TypeError, match="values is int32"):
        plan.with_values(jnp.ones(16, jnp.int32))
    with pytest.raises(ValueError, match=r"x has shape \(\)"):
        js.pruned_matmul(jnp.float32(1), plan)
