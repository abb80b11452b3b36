"""Masks of the first few entries of a row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js


def test_lengths_mask():
    lengths = np.asarray([[-3, 0], [4, 9]])
    want = np.arange(5) < lengths[..., None]
    for dtype in (jnp.int8, jnp.int32):
        np.testing.assert_array_equal(js.lengths_mask(jnp.asarray(lengths, dtype), 5), want)
    huge = jnp.asarray([2**32 - 1, 2], jnp.uint32)
    np.testing.assert_array_equal(js.lengths_mask(huge, 3), [[1, 1, 1], [1, 1, 0]])
    wide = np.asarray([2**32 + 1, -(2**32) + 2, 2**31])
    np.testing.assert_array_equal(js.lengths_mask(wide, 5).sum(-1), [5, 0, 5])
    many = jax.jit(jax.vmap(lambda v: js.lengths_mask(v, 5)))(jnp.asarray(lengths))
    np.testing.assert_array_equal(many, want)


@pytest.mark.parametrize(
    ("lengths", "n", "error", "words"),
    [
        ([1, 2], 3, TypeError, "lengths must be an array"),
        (jnp.ones(2), 3, TypeError, "lengths has dtype float32"),
        (jnp.ones(2, jnp.int32), 3.0, TypeError, "n must be an int"),
        (jnp.ones(2, jnp.int32), -1, ValueError, "n=-1"),
    ],
)
def test_lengths_mask_names_the_argument(lengths, n, error, words):
    with pytest.raises(error, match=words):
        js.lengths_mask(lengths, n)
