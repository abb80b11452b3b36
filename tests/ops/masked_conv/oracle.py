"""The masked convolution in float64 numpy, one tap at a time: shares no code with the package."""

import math

import numpy as np


def activate(y, name):
    if name == "relu":
        return np.maximum(y, 0)
    if name == "relu6":
        return np.clip(y, 0, 6)
    if name == "silu":
        return y / (1 + np.exp(-y))
    if name == "gelu":
        return 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    return y


def pads(n, k, s, d, padding, axis):
    window = (k - 1) * d + 1
    if padding == "SAME":
        total = max((-(-n // s) - 1) * s + window - n, 0)
        return total // 2, total - total // 2
    if padding == "VALID":
        return 0, 0
    return padding[axis]


def masked_conv(
    x,
    kernel,
    mask,
    *,
    strides=(1, 1),
    padding="SAME",
    dilation=(1, 1),
    groups=1,
    bias=None,
    activation=None,
    base=None,
    residual=None,
):
    """where(mask, activation(conv(x, kernel) + bias + residual), base) in float64; pixels of x and
    of the residual that are not read may hold anything.
    """
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    mask = np.asarray(mask)
    (batch, height, width, _), (kh, kw, per_group, outputs) = x.shape, kernel.shape
    top, bottom = pads(height, kh, strides[0], dilation[0], padding, 0)
    left, right = pads(width, kw, strides[1], dilation[1], padding, 1)
    out_h, out_w = mask.shape[1:]
    assert out_h == max(0, (height + top + bottom - (kh - 1) * dilation[0] - 1) // strides[0] + 1)
    assert out_w == max(0, (width + left + right - (kw - 1) * dilation[1] - 1) // strides[1] + 1)
    per_out = outputs // groups
    y = np.zeros((batch, out_h, out_w, outputs))
    for b, oy, ox in zip(*np.nonzero(mask), strict=True):
        for ky in range(kh):
            for kx in range(kw):
                iy = oy * strides[0] + ky * dilation[0] - top
                ix = ox * strides[1] + kx * dilation[1] - left
                if not (0 <= iy < height and 0 <= ix < width):
                    continue
                for g in range(groups):
                    taken = slice(g * per_out, (g + 1) * per_out)
                    pixel = x[b, iy, ix, g * per_group : (g + 1) * per_group]
                    y[b, oy, ox, taken] += pixel @ kernel[ky, kx, :, taken]
    if bias is not None:
        y = y + np.asarray(bias, np.float64)
    if residual is not None:
        y = y + np.where(mask[..., None], np.asarray(residual, np.float64), 0)
    rest = np.zeros_like(y) if base is None else np.asarray(base, np.float64)
    return np.where(mask[..., None], activate(y, activation), rest)
