"""Packing: bit order, every length, transforms, bad input. One meaning for all implementations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index.oracles import words_of as oracle

import jaxsparse as js

SHAPES = [
    (0,),
    (1,),
    (31,),
    (32,),
    (33,),
    (100,),
    (3, 48),
    (2, 3, 65),
    (0, 40),
    (4, 0),
    (2, 2, 2, 7),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back(implementation, shape):
    mask = np.random.default_rng(0).random(shape) < 0.5
    words = js.pack_mask(jnp.asarray(mask), implementation=implementation)
    assert words.dtype == np.uint32
    np.testing.assert_array_equal(words, oracle(mask))
    back = js.unpack_mask(words, shape[-1], implementation=implementation)
    assert back.dtype == np.bool_
    np.testing.assert_array_equal(back, mask)


@settings(max_examples=15)
@given(rows=st.integers(0, 5), n=st.integers(0, 300), seed=st.integers(0, 99), fill=st.floats(0, 1))
def test_any_length(implementation, rows, n, seed, fill):
    mask = np.random.default_rng(seed).random((rows, n)) < fill
    words = js.pack_mask(mask, implementation=implementation)
    np.testing.assert_array_equal(words, oracle(mask))
    np.testing.assert_array_equal(js.unpack_mask(words, n, implementation=implementation), mask)


def test_bits_past_the_end_are_ignored(implementation):
    words = jnp.full((2, 2), 0xFFFFFFFF, jnp.uint32)
    back = js.unpack_mask(words, 40, implementation=implementation)
    assert back.shape == (2, 40)
    assert bool(back.all())


# Not in the op suite: two batch axes, neither of which is the first.
def test_vmap_twice_and_scan(implementation):
    mask = np.random.default_rng(1).random((2, 3, 4, 70)) < 0.3

    def pack(x):
        return js.pack_mask(x, implementation=implementation)

    nested = jax.vmap(jax.vmap(pack, in_axes=1, out_axes=1), in_axes=2, out_axes=2)(mask)
    want = np.moveaxis(oracle(np.moveaxis(mask, 0, 2)), 2, 0)
    np.testing.assert_array_equal(nested, want)
    _, rows = jax.lax.scan(lambda c, x: (c, pack(x)), 0, jnp.asarray(mask))
    np.testing.assert_array_equal(rows, oracle(mask))


def test_a_mask_from_differentiated_values(implementation):
    def loss(x):
        words = js.pack_mask(x > 0, implementation=implementation)
        mask = js.unpack_mask(words, x.shape[-1], implementation=implementation)
        return jnp.where(mask, x, 0.0).sum()

    x = jnp.asarray([[-1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(x), [[0.0, 1.0, 1.0]])
