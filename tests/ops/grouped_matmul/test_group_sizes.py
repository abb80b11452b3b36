"""Groups of one row to hundreds, sums that are deeper than a block of the CPU's kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js

SIZES = (1, 0, 3, 16, 17, 40, 193, 400, 2)
DEPTH, OUTPUTS = 600, 1003


def _problem(rng):
    rows = sum(SIZES) + 5  # five that no group owns
    lhs = rng.standard_normal((rows // 2, DEPTH), np.float32)
    rhs = rng.standard_normal((len(SIZES), DEPTH, OUTPUTS), np.float32) / np.float32(DEPTH**0.5)
    gather = rng.integers(0, len(lhs), rows).astype(np.int32)
    gather[::50] = len(lhs) + 7  # rows that do not exist
    return lhs, rhs, gather, rng.standard_normal(rows, np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scatters", [False, True])
def test_values(implementation, rng, dtype, scatters):
    lhs, rhs, gather, weights = _problem(rng)
    rest = {"gather": gather}
    if scatters:
        rest |= {"scatter": rng.permutation(gather).astype(np.int32)}
    sizes = np.asarray(SIZES, np.int32)
    given = cast({"lhs": lhs, "rhs": rhs}, dtype)
    got = js.grouped_matmul(
        given["lhs"],
        given["rhs"],
        jnp.asarray(sizes),
        row_weights=jnp.asarray(weights),
        implementation=implementation,
        preferred_element_type=jnp.float32,
        **{k: jnp.asarray(v) for k, v in rest.items()},
    )
    exact = rounded({"lhs": lhs, "rhs": rhs}, dtype)
    want = oracle(exact["lhs"], exact["rhs"], sizes, row_weights=weights, **rest)
    assert_close(got, want, "float32", scale=2.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_of_rows(implementation, rng, dtype):
    """The rows' gradient multiplies by weights that lie transposed."""
    _, rhs, _, _ = _problem(rng)
    rows = sum(SIZES)
    given = cast({"x": np.ones((rows, DEPTH), np.float32), "rhs": rhs}, dtype)
    gy = cast({"gy": rng.standard_normal((rows, OUTPUTS), np.float32)}, dtype)["gy"]
    sizes = np.asarray(SIZES, np.int32)

    def product(x):
        return js.grouped_matmul(x, given["rhs"], jnp.asarray(sizes), implementation=implementation)

    (got,) = jax.vjp(product, given["x"])[1](gy)
    exact = rounded({"rhs": rhs}, dtype)["rhs"]
    want = oracle(np.asarray(gy, np.float64), np.swapaxes(exact, 1, 2), sizes)
    assert got.dtype == dtype
    assert_close(got, want, dtype, scale=2.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_of_weights(implementation, rng, dtype):
    lhs, rhs, gather, weights = _problem(rng)
    gy = rng.standard_normal((len(gather), OUTPUTS), np.float32)
    given = cast({"lhs": lhs, "rhs": rhs, "gy": gy}, dtype)

    def product(rhs):
        return js.grouped_matmul(
            given["lhs"],
            rhs,
            jnp.asarray(SIZES, jnp.int32),
            gather=jnp.asarray(gather),
            row_weights=jnp.asarray(weights),
            implementation=implementation,
        )

    (got,) = jax.vjp(product, given["rhs"])[1](given["gy"])
    exact = rounded({"lhs": lhs, "gy": gy}, dtype)
    exists, first = gather < len(lhs), 0
    assert got.dtype == dtype
    for group, size in enumerate(SIZES):
        rows = np.flatnonzero(exists[first : first + size]) + first
        x = np.asarray(exact["lhs"], np.float64)[gather[rows]] * weights[rows, None]
        assert_close(got[group], x.T @ np.asarray(exact["gy"], np.float64)[rows], dtype, scale=2.0)
        first += size


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="docs/numerics.md promises it on a CPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_has_the_same_bits_in_a_group_of_any_size(rng, dtype):
    given = cast(
        {
            "x": rng.standard_normal((1, DEPTH), np.float32),
            "w": rng.standard_normal((1, DEPTH, OUTPUTS), np.float32),
        },
        dtype,
    )
    product = jax.jit(lambda x, w, sizes: js.grouped_matmul(x, w, sizes, implementation="cpu"))
    want = None
    for rows in (1, 2, 3, 7, 16, 17, 30, 200, 500):
        x = jnp.tile(given["x"], (rows, 1))
        got = np.asarray(product(x, given["w"], jnp.asarray([rows], jnp.int32)), np.float32)
        want = got[:1] if want is None else want
        np.testing.assert_array_equal(got, np.tile(want, (rows, 1)))
