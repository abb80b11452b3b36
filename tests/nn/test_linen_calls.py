"""Linen layers inherit their calls, and flax treats them as methods of the layers' own."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

import jaxsparse as js

LAYER = js.nn.linen.MaskedDense
X, MASK = jnp.ones((3, 4)), np.array([True, False, True])


class Renamed(LAYER):
    factor: int = 2


class Twice(LAYER):
    @linen.compact
    def __call__(self, inputs, mask=None):
        return 2 * super().__call__(inputs, mask)


def test_subclasses_and_transforms():
    params = LAYER(5).init(jax.random.key(0), X, MASK)
    expected, seen = LAYER(5).apply(params, X, MASK, capture_intermediates=True)
    assert seen["intermediates"]["__call__"][0] is not None
    for layer, factor in ((Renamed(5), 1), (Twice(5), 2), (linen.remat(LAYER)(5), 1)):
        assert jnp.array_equal(layer.apply(params, X, MASK), factor * expected)
    assert not hasattr(js.nn.nnx.MaskedDense.__call__, "compact")
    assert LAYER.__call__.__doc__ == js.nn.nnx.MaskedDense.__call__.__doc__
