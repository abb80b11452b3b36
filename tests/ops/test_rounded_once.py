"""Sums of 16-bit products stay in float32 until bias, residual, activation and the sum over sorted
rows are applied: by every variant of a CPU, the dense operation too. A sum of 2049 is 2048 in 16
bits: with a bias of -2048 the result is 1 only where the sum was not rounded.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.ffi.register import module

pytestmark = [
    pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module"),
    pytest.mark.skipif(jax.default_backend() == "gpu", reason="variants of a CPU"),
]
#: 683 products of 3 * 1.
DEPTH, AWAY, WIDTH = 683, -2048, 6


def filled(*shape, value=1.0):
    return np.full(shape, value, np.float32)


def pruned(w, dtype, groups=1):
    if w.ndim == 4:
        return js.pruned.inspect(w.astype(dtype), kind="conv", groups=groups)
    return js.pruned.inspect(w.astype(dtype), kind="matmul")


IMAGE, ROWS = filled(1, 2, 3, DEPTH, value=3), filled(5, DEPTH, value=3)
KERNEL, WEIGHT = filled(1, 1, DEPTH, WIDTH), filled(DEPTH, WIDTH)
#: A depthwise kernel whose window is the whole image.
TAPS, PIXELS = filled(1, DEPTH, 1, WIDTH), filled(1, 1, DEPTH, WIDTH, value=3)
BIAS, HALF = filled(WIDTH, value=AWAY), filled(WIDTH, value=AWAY / 2)
RESIDUAL = filled(1, 2, 3, WIDTH, value=AWAY / 2)


def masked_conv(x):
    kernel, bias, residual = (jnp.asarray(v, x.dtype) for v in (KERNEL, HALF, RESIDUAL))
    mask = jnp.ones((1, 2, 3), bool)
    return js.masked_conv(x, kernel, mask, bias=bias, residual=residual, activation="relu")


def masked_dense(x):
    w, bias = (jnp.asarray(v, x.dtype) for v in (WEIGHT, BIAS))
    return js.masked_dense(x, w, jnp.ones(5, bool), bias=bias)


def pruned_matmul(x):
    bias = jnp.asarray(BIAS, x.dtype)
    return js.pruned_matmul(x, pruned(WEIGHT, x.dtype), bias=bias, activation="relu")


def pruned_conv(x):
    return js.pruned_conv(x, pruned(KERNEL, x.dtype), bias=jnp.asarray(BIAS, x.dtype))


def pruned_depthwise(x):
    kernel = pruned(TAPS, x.dtype, groups=WIDTH)
    return js.pruned_conv(x, kernel, padding="VALID", bias=jnp.asarray(BIAS, x.dtype))


def grouped_matmul(x):
    """Two sorted rows are added up, of two groups."""
    rhs = np.stack([WEIGHT, filled(DEPTH, WIDTH, value=0)])
    rhs[1, 0] = AWAY / 4
    x, rhs = x[:2].at[1, 0].set(4), jnp.asarray(rhs, x.dtype)
    sizes, to = jnp.ones(2, jnp.int32), jnp.zeros(2, jnp.int32)
    return js.grouped_matmul(x, rhs, sizes, scatter=to, num_rows=1)


#: Variants that take one kind of problem -> their call and what it is given.
APART = {"dots": (pruned_matmul, ROWS[:1]), "depthwise": (pruned_depthwise, PIXELS)}
CASES = [
    (call, given, name)
    for call, given in (
        (masked_conv, IMAGE),
        (masked_dense, ROWS),
        (pruned_matmul, ROWS),
        (pruned_conv, IMAGE),
        (grouped_matmul, ROWS),
    )
    for name in dict.fromkeys(v.name for v in js.variants(call.__name__) if v.platform == "cpu")
    if name not in APART
] + [(*way, name) for name, way in APART.items()]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("call", "given", "name"), CASES, ids=[f"{call.__name__}-{name}" for call, _, name in CASES]
)
def test_rounded_once(call, given, name, dtype):
    with js.config(variant=name):
        y = jax.jit(call)(jnp.asarray(given, dtype))
    np.testing.assert_array_equal(np.asarray(y, np.float32), np.ones(y.shape))
