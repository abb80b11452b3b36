"""The index of what a mask's pixels read, against counting taps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsparse as js
from jaxsparse.core.geometry import Window
from jaxsparse.index.reach_index import MOST_REACH, _check_window, _Spec, reach_index


def oracle(mask, window, in_hw):
    """bool[B, H, W]: which input pixels some active output pixel reads."""
    out = np.zeros((mask.shape[0], *in_hw), bool)
    (top, left), (up_h, up_w) = window.pads, window.lhs_dilation
    for b, oy, ox in zip(*np.nonzero(mask), strict=True):
        for ky, kx in np.ndindex(*window.taps):
            y = oy * window.strides[0] + ky * window.dilation[0] - top
            x = ox * window.strides[1] + kx * window.dilation[1] - left
            if y % up_h or x % up_w or min(y, x) < 0:
                continue
            if y // up_h < in_hw[0] and x // up_w < in_hw[1]:
                out[b, y // up_h, x // up_w] = True
    return out


def pack(mask):
    return js.pack_mask(jnp.asarray(mask))


def check(mask, window, in_hw, implementation, keep=None):
    kept = None if keep is None else pack(keep)
    words = pack(mask)
    index = reach_index(words, window, mask.shape[2], in_hw, kept, implementation)
    want = oracle(mask, window, in_hw)
    want &= True if keep is None else keep
    np.testing.assert_array_equal(index.words, pack(want))
    ids = np.flatnonzero(want)
    assert int(index.count) == len(ids)
    assert not bool(index.overflow)
    np.testing.assert_array_equal(np.sort(np.asarray(index.ids)[: len(ids)]), ids)
    assert (np.asarray(index.ids)[len(ids) :] == -1).all()


axes = st.tuples(
    st.integers(0, 4),  # taps
    st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]),  # stride, lhs_dilation
    st.integers(-4, 40),  # pad
    st.integers(1, 3),  # dilation
)


@settings(max_examples=15)
@given(
    images=st.integers(0, 2),
    out_hw=st.tuples(st.integers(0, 9), st.integers(0, 70)),
    in_hw=st.tuples(st.integers(0, 12), st.integers(0, 75)),
    rows=axes,
    columns=axes,
    fill=st.sampled_from([0.02, 0.3, 1.0]),
    keeps=st.booleans(),
    seed=st.integers(0, 9),
)
def test_any_window(implementation, images, out_hw, in_hw, rows, columns, fill, keeps, seed):
    rng = np.random.default_rng(seed)
    taps, steps, pads, dilation = zip(rows, columns, strict=True)
    strides, lhs_dilation = zip(*steps, strict=True)
    window = Window(taps, strides, pads, dilation, lhs_dilation)
    keep = rng.random((images, *in_hw)) < 0.5 if keeps else None
    check(rng.random((images, *out_hw)) < fill, window, in_hw, implementation, keep)


@pytest.mark.parametrize("size", [40, 97, 300])
def test_a_window_of_3x3(implementation, size):
    window = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    mask = np.random.default_rng(size).random((2, size, size)) < 0.01
    check(mask, window, (size, size), implementation)


# Not in the op suite: reach_index is not an op of the API.
def test_vmap_folds_into_one_call(implementation):
    window = Window((3, 3), (2, 2), (0, 0), (1, 1), (1, 1))
    masks = np.random.default_rng(1).random((3, 2, 8, 20)) < 0.1
    keep = np.random.default_rng(2).random((2, 17, 41)) < 0.5

    def build(mask):
        return reach_index(js.pack_mask(mask), window, 20, (17, 41), pack(keep), implementation)

    many = jax.jit(jax.vmap(build))(jnp.asarray(masks))
    for k, mask in enumerate(masks):
        want = oracle(mask, window, (17, 41)) & keep
        np.testing.assert_array_equal(many.words[k], pack(want))


def test_the_gradient_lists_what_the_mask_reaches_in_one_call():
    x, kernel = jnp.ones((1, 9, 13, 8)), jnp.ones((3, 3, 8, 8))
    mask = jnp.asarray(np.random.default_rng(0).random((1, 9, 13)) < 0.3)
    index = js.tile_index(mask)

    def loss(x):
        return js.masked_conv(x, kernel, index).sum()

    text = jax.jit(jax.grad(loss)).lower(x).as_text()
    assert text.count("jaxsparse_reach_index") >= 1
    assert "reduce_window" not in text


def test_what_a_gpu_does_not_reach():
    """As contracts/index.toml counts it: sizes, window and pad of an axis together."""
    window = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    room = MOST_REACH - 32 - 3 - 1  # for both sizes
    fits = _Spec(window, 1, (room // 2 - 1, 1), None)
    _check_window(fits, room // 2, on_gpu=True)
    past = fits._replace(in_hw=(room // 2 + 1, 1))
    with pytest.raises(ValueError, match=r"^x has \d+ pixels along axis 1, and the"):
        _check_window(past, room // 2, on_gpu=True)
    _check_window(past, room // 2, on_gpu=False)
