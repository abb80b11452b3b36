"""What a window reads and what an edit changes, against loops over pixels and taps."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsparse.mask import random_pixels
from jaxsparse.mask.reach import affected, reach


def taps(out_size, in_size, kernel, stride, low, dilation):
    """Pairs (output, input) along one axis."""
    pairs = [(o, o * stride + k * dilation - low) for o in range(out_size) for k in range(kernel)]
    return [(o, i) for o, i in pairs if 0 <= i < in_size]


def brute(mask, in_hw, out_hw, kernel, strides, pads, dilation, *, forward):
    out = np.zeros((len(mask), *(out_hw if forward else in_hw)), bool)
    rows = taps(out_hw[0], in_hw[0], kernel[0], strides[0], pads[0][0], dilation[0])
    cols = taps(out_hw[1], in_hw[1], kernel[1], strides[1], pads[1][0], dilation[1])
    for oy, iy in rows:
        for ox, ix in cols:
            if forward:
                out[:, oy, ox] |= mask[:, iy, ix]
            else:
                out[:, iy, ix] |= mask[:, oy, ox]
    return out


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
pad = st.tuples(st.integers(-1, 3), st.integers(-1, 3))


@settings(max_examples=15)
@given(
    in_hw=st.tuples(st.integers(4, 12), st.integers(4, 12)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=pairs,
    dilation=pairs,
    pads=st.tuples(pad, pad),
    seed=st.integers(0, 9),
)
def test_against_loops(in_hw, kernel, strides, dilation, pads, seed):
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    out_hw = tuple(
        max((n + low + high - span) // s + 1, 0) if n + low + high >= span else 0
        for n, (low, high), span, s in zip(in_hw, pads, spans, strides, strict=True)
    )
    common = {"kernel": kernel, "strides": strides, "pads": pads, "dilation": dilation}
    mask = random_pixels((2, *in_hw), 0.2, seed=seed)
    out = affected(mask, kernel, strides, pads, dilation)
    assert out.shape == (2, *out_hw)
    np.testing.assert_array_equal(out, brute(mask, in_hw, out_hw, forward=True, **common))
    mask = random_pixels((2, *out_hw), 0.2, seed=seed)
    back = reach(mask, kernel, strides, pads, dilation, in_hw)
    np.testing.assert_array_equal(back, brute(mask, in_hw, out_hw, forward=False, **common))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", 1])
def test_named_padding_matches_a_convolution(padding):
    mask = random_pixels((1, 11, 13), 0.1, seed=1)
    pads = [(1, 1), (1, 1)] if padding == 1 else padding
    conv = jax.lax.conv_general_dilated(
        mask[..., None].astype(np.float32),
        np.ones((3, 4, 1, 1), np.float32),
        (2, 1),
        pads,
        rhs_dilation=(1, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    out = affected(mask, (3, 4), (2, 1), padding, (1, 2))
    np.testing.assert_array_equal(out, conv[..., 0] > 0.5)


def test_under_jit_and_vmap():
    masks = random_pixels((6, 9, 10), 0.2).reshape(3, 2, 9, 10)
    run = jax.jit(jax.vmap(lambda m: reach(m, 3, 2, "SAME", 1, (17, 20))))
    for one, mask in zip(run(masks), masks, strict=True):
        np.testing.assert_array_equal(one, reach(mask, 3, 2, "SAME", 1, (17, 20)))


def test_zero_sizes_and_bad_masks():
    assert reach(np.zeros((2, 0, 4), bool), 3, 1, "SAME", 1, (0, 4)).shape == (2, 0, 4)
    assert affected(np.zeros((0, 5, 4), bool), 3, 2, "VALID", 1).shape == (0, 2, 1)
    with pytest.raises(TypeError, match="mask must be a bool array"):
        affected(np.zeros((5, 4), bool), 3, 1, "SAME", 1)
