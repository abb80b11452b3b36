"""Rows of a table in chosen rows of a result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsparse.ops.masked_conv.fill import fill_rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (70, 8), (333, 7), (257, 256), (40, 300), (0, 4)])
def test_equals_indexing(implementation, rng, dtype, rows, n):
    base, table = (jnp.asarray(rng.standard_normal((k, n)), dtype) for k in (rows, 5))
    select = rng.integers(-1, 5, rows).astype(np.int32)
    got = jax.jit(lambda b, t, s: fill_rows(b, t, s, implementation))(base, table, select)
    want = np.where((select >= 0)[:, None], np.asarray(table)[np.maximum(select, 0)], base)
    np.testing.assert_array_equal(got, want)
    free = fill_rows(None, table, jnp.asarray(select), implementation)
    np.testing.assert_array_equal(np.asarray(free)[select >= 0], want[select >= 0])


def test_rows_that_nobody_reads_may_be_left(implementation, rng):
    base, table = jnp.full((6, 4), jnp.nan), jnp.arange(8.0).reshape(2, 4)
    select = jnp.asarray([0, -2, 1, -1, -3, 1], jnp.int32)
    got = np.asarray(fill_rows(base, table, select, implementation))
    np.testing.assert_array_equal(got[[0, 2, 5]], np.asarray(table)[[0, 1, 1]])
    assert np.isnan(got[3]).all()
    for row, entry in ((1, 0), (4, 1)):
        assert np.isnan(got[row]).all() or (got[row] == np.asarray(table)[entry]).all()


# Not in the op suite: fill_rows is not an op of the API.
@pytest.mark.parametrize("in_axes", [(0, 0, 0), (0, None, 0), (None, 0, None)])
def test_vmap(implementation, rng, in_axes):
    arrays = (
        jnp.asarray(rng.standard_normal((3, 20, 4)), jnp.float32),
        jnp.asarray(rng.standard_normal((3, 5, 4)), jnp.float32),
        jnp.asarray(rng.integers(-1, 5, (3, 20)), jnp.int32),
    )
    given = [a if axis == 0 else a[0] for a, axis in zip(arrays, in_axes, strict=True)]

    def f(base, table, select):
        return fill_rows(base, table, select, implementation)

    each = [[a[i] if axis == 0 else a[0] for a, axis in zip(arrays, in_axes, strict=True)]
            for i in range(3)]  # fmt: skip
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(f, in_axes))(*given), jnp.stack([f(*e) for e in each])
    )


@pytest.mark.parametrize("entries", [3, 40])
def test_gradients(implementation, rng, entries):
    base, table, weights = (
        jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((20, 4), (entries, 4), (20, 4))
    )
    select = jnp.asarray(rng.integers(-1, entries, 20), jnp.int32)

    def plain(base, table):
        rows = table[jnp.maximum(select, 0)]
        return (jnp.where((select >= 0)[:, None], rows, base) ** 2 * weights).sum()

    def ours(base, table):
        return (fill_rows(base, table, select, implementation) ** 2 * weights).sum()

    for a, b in zip(
        jax.grad(ours, (0, 1))(base, table), jax.grad(plain, (0, 1))(base, table), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("entries", [3, 40])
def test_gradients_are_the_same_bit_by_bit(implementation, rng, entries):
    table = jnp.asarray(rng.standard_normal((entries, 16)), jnp.float32)
    base, weights = (jnp.asarray(rng.standard_normal((50_000, 16)), jnp.float32) for _ in range(2))
    select = jnp.asarray(rng.integers(-1, entries, 50_000), jnp.int32)

    @jax.jit
    @jax.grad
    def gradient(table):
        return (fill_rows(base, table, select, implementation) * weights).sum()

    first = gradient(table)
    for _ in range(3):
        np.testing.assert_array_equal(gradient(table), first)
    chosen = np.asarray(select)[:, None] == np.arange(entries)
    want = chosen.T.astype(np.float64) @ np.asarray(weights, np.float64)
    np.testing.assert_allclose(first, want, atol=1e-2)


@pytest.mark.parametrize("entries", [3, 40])
def test_a_nan_reaches_its_own_entry_alone(implementation, entries):
    select = jnp.asarray([1, 2, -1, 1, 0], jnp.int32)
    weights = jnp.asarray([1.0, jnp.nan, jnp.nan, 3.0, 5.0])[:, None]

    def total(table):
        return (fill_rows(None, table, select, implementation) * weights)[select >= 0].sum()

    got = jax.grad(total)(jnp.zeros((entries, 1)))[:3, 0]
    np.testing.assert_array_equal(got, [5.0, 4.0, np.nan])
