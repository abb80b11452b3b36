"""The example's mask, made inside jit, is the one that `js.prune.magnitude` makes outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

BLOCK = (32, 64)


@pytest.fixture
def magnitude_mask(examples):
    from models.sparse_training import magnitude_mask

    return magnitude_mask


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.8])
def test_equal_masks_and_the_product_under_them(rng, magnitude_mask, sparsity):
    w = jnp.asarray(rng.standard_normal((70, 130), np.float32))
    h = jnp.asarray(rng.standard_normal((130, 9), np.float32))
    mask = js.prune.magnitude(w, sparsity, BLOCK)[:: BLOCK[0], :: BLOCK[1]]
    np.testing.assert_array_equal(mask, magnitude_mask(w, jnp.float32(sparsity), BLOCK))
    with jax.default_matmul_precision("highest"):  # a GPU's default is TF32
        y = js.masked_matmul(w, h, a_mask=jnp.asarray(mask), granularity=BLOCK)
    kept = np.repeat(np.repeat(mask, BLOCK[0], 0), BLOCK[1], 1)[:70, :130]
    np.testing.assert_allclose(y, np.where(kept, w, 0) @ h, atol=1e-4)
