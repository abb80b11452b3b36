"""masked_dense against numpy: it is masked_conv under another name, so values, gradients and
transforms are spot checks.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js


def problem(rng, batch=(3, 20)):
    lengths = rng.integers(0, batch[-1] + 1, batch[:-1])
    mask = np.arange(batch[-1]) < lengths[..., None]
    return (
        rng.standard_normal((*batch, 16), np.float32),
        rng.standard_normal((16, 24), np.float32) / 4,
        rng.standard_normal(24, np.float32),
        mask,
    )


@pytest.mark.parametrize("batch", [(50,), (3, 20), (2, 3, 20), (0, 5)])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_values(implementation, rng, batch, activation):
    x, w, bias, mask = problem(rng, batch)
    base = rng.standard_normal((*batch, 24), np.float32)
    y = x.astype(np.float64) @ w + bias
    want = np.where(mask[..., None], np.maximum(y, 0) if activation else y, base)
    x = np.where(mask[..., None], x, np.nan)
    got = js.masked_dense(
        jnp.asarray(x),
        jnp.asarray(w),
        jnp.asarray(mask),
        bias=jnp.asarray(bias),
        activation=activation,
        base=jnp.asarray(base),
        implementation=implementation,
    )
    assert_close(got, want, "float32")


def test_one_index_serves_many_layers(implementation, rng):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    index = js.token_index(mask, implementation=implementation)
    got = js.masked_dense(x, w, index, implementation=implementation)
    assert_close(got, js.masked_dense(x, w, mask, implementation=implementation), "float32")


def test_a_numpy_base_of_float64_is_taken_as_jax_does(rng):
    x, w, _, mask = map(jnp.asarray, problem(rng))
    got = js.masked_dense(x, w, mask, base=np.full((3, 20, 24), 2.0))
    np.testing.assert_array_equal(np.asarray(got)[~np.asarray(mask)], 2.0)
