"""The indices of what an edit reaches, against masks made one convolution after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsparse as js
from jaxsparse.ffi import register
from jaxsparse.index import affected_index


def spread(mask, window, stride):
    """bool[B, Ho, Wo]: the outputs of a convolution padded "SAME" that read a set pixel."""
    out_hw = [-(-n // s) for n, s in zip(mask.shape[1:], stride, strict=True)]
    pads = [
        max((o - 1) * s + k - n, 0) // 2
        for n, o, s, k in zip(mask.shape[1:], out_hw, stride, window, strict=True)
    ]
    out = np.zeros((mask.shape[0], *out_hw), bool)
    for b, y, x in np.ndindex(*out.shape):
        rows, columns = (
            slice(max(at * s - p, 0), max(at * s - p + k, 0))
            for at, s, p, k in zip((y, x), stride, pads, window, strict=True)
        )
        out[b, y, x] = mask[b, rows, columns].any()
    return out


def tiles_of(mask, tile):
    rows, cols = (-(-n // t) for n, t in zip(mask.shape[1:], tile, strict=True))
    b, y, x = np.nonzero(mask)
    return np.unique((b * rows + y // tile[0]) * cols + x // tile[1])


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


def test_vmap_folds_into_one_call(implementation):
    masks = np.random.default_rng(1).random((3, 2, 20, 40)) < 0.01
    stages = [[(3, 1)], [(3, 2)]]

    def build(mask):
        return affected_index(mask, stages, (4, 8), implementation=implementation)

    many = jax.jit(jax.vmap(build))(jnp.asarray(masks))
    for k, mask in enumerate(masks):
        want = spread(mask, (3, 3), (1, 1))
        np.testing.assert_array_equal(many[0].words[k], js.pack_mask(jnp.asarray(want)))
        want = spread(want, (3, 3), (2, 2))
        assert int(many[1].count[k]) == len(tiles_of(want, (4, 8)))


def test_on_a_gpu_one_call_makes_all_of_it():
    mask = jax.ShapeDtypeStruct((1, 64, 64), np.bool_)
    lowered = jax.jit(lambda mask: affected_index(mask, [[(3, 1)], [(3, 2)]], (8, 8))).trace(mask)
    text = lowered.lower(lowering_platforms=("cuda",)).as_text()
    if register.module("cuda")[0] is None:
        pytest.skip("this build has no CUDA module")
    assert text.count("custom_call") == 1
    assert "reduce_window" not in text


@pytest.mark.parametrize(
    ("stages", "tile", "error", "match"),
    [
        ([], (8, 8), ValueError, "stages has 0 entries"),
        ([[(3, 1)]] * 5, (8, 8), ValueError, "stages has 5 entries"),
        ([[3, 1]], (8, 8), TypeError, "stages="),
        ([[(3, 0)]], (8, 8), TypeError, "stages="),
        ([[(1, 2), (3, 1)]], (8, 8), ValueError, "leave pixels out"),
        ([[(3, 1)]], (3, 8), ValueError, "tile="),
        ([[(2**20, 1)] * 2], (8, 8), ValueError, "stages: a row of tiles"),
    ],
)
def test_bad_input(stages, tile, error, match):
    with pytest.raises(error, match=match):
        affected_index(jnp.zeros((1, 16, 16), bool), stages, tile)


def test_bad_mask():
    with pytest.raises(TypeError, match="spatial_mask"):
        affected_index(jnp.zeros((1, 16, 16)), [[(3, 1)]], (8, 8))
