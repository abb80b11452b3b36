"""NaN, infinities, -0, subnormal and huge numbers where they count: the table of docs/numerics.md,
for every product in one program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numerics.promises import table

import jaxsparse as js
from jaxsparse.ffi.register import module

pytestmark = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
ON_GPU = jax.default_backend() == "gpu"
DEPTH, WIDTH, HIGH = 24, 20, 16
ROWS = {
    "a NaN": [np.nan, 1],
    "inf": [np.inf, 1],
    "-inf": [-np.inf, 1],
    "inf and -inf": [np.inf, -np.inf, 1],
    "only -0": [-0.0],
    "only subnormal numbers": [1e-40],
    "numbers whose sum overflows": [3e38],
}
ALONE = ("product", "relu", "relu6", "silu", "gelu")


def products(x, w):
    """Every product of x and w, and the activated ones by name; nothing is masked."""
    pixels, every = x.reshape(1, 4, 4, DEPTH), jnp.ones((1, 4, 4), bool)
    blocks = x.reshape(2, 8, 3, 8).transpose(0, 2, 1, 3).reshape(6, 8, 8)
    pruned = js.pruned.inspect(np.ones((DEPTH, WIDTH), x.dtype))
    whole = jnp.ones((2, 3), bool)
    found = {"product": [], **{name: [] for name in ALONE[1:]}}
    for name in ALONE:
        activation = None if name == "product" else name
        given = {"activation": activation}
        y = js.masked_conv(pixels, w[None, None], every, **given).reshape(HIGH, WIDTH)
        found[name] += [y, js.masked_dense(x, w, jnp.ones(HIGH, bool), **given)]
        found[name].append(js.pruned_matmul(x, pruned, **given))
    found["product"] += [
        js.grouped_matmul(x, w[None], jnp.array([HIGH], jnp.int32)),
        js.masked_matmul(x, w, a_mask=whole, granularity=(8, 8)),
        js.kept_matmul(blocks, js.kept_blocks(whole, (HIGH, DEPTH), (8, 8)), w),
    ]
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_row_of_special_values_gives(dtype):
    x = np.ones((HIGH, DEPTH), np.float32)
    for row, values in enumerate(ROWS.values()):
        x[row] = values[-1]
        x[row, : len(values)] = values
    given = jnp.asarray(x.astype(dtype)), jnp.ones((DEPTH, WIDTH), dtype)
    found = jax.jit(products)(*given)
    page = {cells[0]: dict(zip(ALONE, cells[1:], strict=True)) for cells in table(HEADING)}
    assert page.keys() == ROWS.keys()
    for name, each in found.items():
        for i, y in enumerate(np.array(v, np.float32) for v in each):
            for row, what in enumerate(ROWS):
                want = np.full(WIDTH, np.float32(page[what][name]))
                if ON_GPU and what == "only subnormal numbers":  # they may stay what they are
                    y[row][abs(y[row]) < np.finfo(np.float32).tiny] = 0
                np.testing.assert_array_equal(y[row], want, f"{name} {i}, {what}")
                assert not np.signbit(y[row][y[row] == 0]).any(), (name, i, what)
            assert np.isfinite(y[len(ROWS) :]).all()


HEADING = "NaN, infinity and zeros where active"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_copied(dtype):
    """By a window of one, and into packed rows."""
    x = np.ones((4, DEPTH), np.float32)
    x[:, :4] = np.nan, np.inf, -np.inf, -0.0
    given, every = jnp.asarray(x.astype(dtype)), jnp.ones(4, bool)

    def copies(x):
        pixels = x.reshape(1, 2, 2, DEPTH), jnp.ones((1, 2, 2), bool), (1, 1)
        pools = [js.masked_pool(*pixels, kind=kind).reshape(x.shape) for kind in ("max", "avg")]
        return [*pools, js.pack_tokens(x[None], every[None])[0]]

    for y in jax.jit(copies)(given):
        got = np.asarray(y, np.float32).reshape(x.shape)
        np.testing.assert_array_equal(got, x)
        np.testing.assert_array_equal(np.signbit(got[:, 3]), True)
