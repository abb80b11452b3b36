"""An index that holds its mask: the list is left out where only the mask is read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.index.mask_index import with_mask

MASK = jnp.asarray(np.random.default_rng(0).random((2, 9, 13)) < 0.3)
X = jnp.ones((2, 9, 13, 8))
KERNEL = jnp.ones((3, 3, 8, 8))


def call(x, kernel, mask):
    return js.masked_conv(x, kernel, mask)


def test_it_is_the_index_and_the_mask():
    index = with_mask(js.tile_index(MASK, (2, 4)), MASK)
    assert isinstance(index, js.TileIndex)
    np.testing.assert_array_equal(index.to_mask(), MASK)
    np.testing.assert_array_equal(index.cover(), MASK)
    leaves, tree = jax.tree.flatten(index)
    again = jax.tree.unflatten(tree, leaves)
    np.testing.assert_array_equal(again.tile_mask(), js.tile_index(MASK, (2, 4)).tile_mask())
    drawn = jax.vmap(lambda m: with_mask(js.tile_index(m), m).cover())(MASK[None])
    np.testing.assert_array_equal(drawn[0], MASK)


@pytest.mark.parametrize("variant", ["dense", None])
def test_dense_lists_nothing(variant):
    with js.config(variant=variant):
        compiled = jax.jit(call).lower(X, KERNEL, MASK).compile()
        listed = 'custom_call_target="jaxsparse' in compiled.as_text()
        got = compiled(X, KERNEL, MASK)
    assert listed == (variant is None)
    want = js.masked_conv(X, KERNEL, MASK, implementation="reference")
    np.testing.assert_allclose(got, want, rtol=1e-5)
