"""The indices of what an edit reaches, against masks made one convolution after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index.oracles import spread, tiles_of

import jaxsparse as js
from jaxsparse.ffi import register
from jaxsparse.index import affected_index


def check(mask, stages, tile, implementation):
    found = affected_index(jnp.asarray(mask), stages, tile, implementation=implementation)
    assert len(found) == len(stages)
    for index, layers in zip(found, stages, strict=True):
        for window, stride in layers:
            mask = spread(mask, np.broadcast_to(window, 2), np.broadcast_to(stride, 2))
        want = tiles_of(mask, tile)
        ids = np.asarray(index.ids)
        assert index.tile == tile
        assert index.shape == mask.shape
        assert index.capacity == index.n_tiles == len(ids)
        np.testing.assert_array_equal(index.words, js.pack_mask(jnp.asarray(mask)))
        assert int(index.count) == len(want)
        assert not bool(index.overflow)
        np.testing.assert_array_equal(np.sort(ids[: len(want)]), want)
        assert (ids[len(want) :] == -1).all()


layers = st.lists(
    st.sampled_from([(3, 1), (1, 1), (3, 2), (2, 2), ((5, 2), (1, 2)), (4, 1), (4, 3)]),
    max_size=3,
)


@settings(max_examples=15)
@given(
    shape=st.tuples(st.integers(0, 2), st.integers(0, 41), st.integers(0, 75)),
    stages=st.lists(layers, min_size=1, max_size=4),
    tile=st.sampled_from([(1, 1), (2, 4), (8, 8), (16, 32)]),
    fill=st.sampled_from([0.0, 0.002, 0.05, 1.0]),
    seed=st.integers(0, 9),
)
def test_any_stages(implementation, shape, stages, tile, fill, seed):
    check(np.random.default_rng(seed).random(shape) < fill, stages, tile, implementation)


@pytest.mark.parametrize("size", [64, 97, 300])
def test_a_network_with_a_step_down(implementation, size):
    mask = np.zeros((1, size, size), bool)
    mask[:, size // 3 : size // 2, size // 4 : size // 2] = True
    check(mask, [[(3, 1)] * 3, [(3, 2)] + [(3, 1)] * 4], (8, 8), implementation)


def test_on_a_gpu_one_call_makes_all_of_it():
    mask = jax.ShapeDtypeStruct((1, 64, 64), np.bool_)
    lowered = jax.jit(lambda mask: affected_index(mask, [[(3, 1)], [(3, 2)]], (8, 8))).trace(mask)
    text = lowered.lower(lowering_platforms=("cuda",)).as_text()
    if register.module("cuda")[0] is None:
        pytest.skip("this build has no CUDA module")
    assert text.count("custom_call") == 1
    assert "reduce_window" not in text


def test_bad_mask():
    with pytest.raises(TypeError, match="mask"):
        affected_index(jnp.zeros((1, 16, 16)), [[(3, 1)]], (8, 8))
