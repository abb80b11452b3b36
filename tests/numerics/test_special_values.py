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
from jaxsparse.ops.top_experts.api import top_experts

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
    window = js.pruned.inspect(np.ones((1, 1, DEPTH, WIDTH), x.dtype), kind="conv")
    whole, base = jnp.ones((2, 3), bool), jnp.zeros((1, 4, 4, WIDTH), x.dtype)
    found = {"product": [], **{name: [] for name in ALONE[1:]}}
    for name in ALONE:
        activation = None if name == "product" else name
        given = {"activation": activation}
        y = js.masked_conv(pixels, w[None, None], every, **given).reshape(HIGH, WIDTH)
        found[name] += [y, js.masked_dense(x, w, jnp.ones(HIGH, bool), **given)]
        found[name].append(js.pruned_matmul(x, pruned, **given))
        y = js.pruned_conv(pixels, window, **given)
        found[name].append(y.reshape(HIGH, WIDTH))
        kernels, bases = [w[None, None]], [base]
        stacked = js.masked_conv_stack(pixels, kernels, every, bases, activations=[activation])
        found[name].append(stacked[0].reshape(HIGH, WIDTH))
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


SPECIAL = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_that_is_not_finite_is_alone(dtype, value):
    """In operations that are more than a product, all rows but that of a query, a token, a row of a
    norm or a row of logits that is not finite are those of finite operands, bit for bit.
    """
    x = np.random.default_rng(5).standard_normal((8, 16)).astype(np.float32)
    w, every = jnp.asarray(abs(x.T).astype(dtype)), jnp.ones(8, bool)
    wide, values = jnp.concatenate([w, w], 1), jnp.ones((1, 8, 1, 16), dtype)

    def rows(x):
        heads = x.reshape(1, 8, 1, 16)
        mask = js.block_masks.causal(8, 8, 16)
        found = [
            js.sparse_attention(heads, w.T.reshape(1, 8, 1, 16), values, mask),
            js.sparse_ffn(x, wide, wide.T),
            js.sparse_ffn(x, wide, wide.T, w_gate=wide),
            js.masked_norm(x, every, kind="layer"),
            top_experts(x.astype(jnp.float32), 2).weights,
        ]
        return [v.reshape(8, -1) for v in found]

    given, run = jnp.asarray(x.astype(dtype)), jax.jit(rows)
    for plain, y in zip(run(given), run(given.at[3, 5].set(value)), strict=True):
        plain, y = (np.asarray(v, np.float32) for v in (plain, y))
        np.testing.assert_array_equal(np.delete(y, 3, 0), np.delete(plain, 3, 0))
        assert np.isfinite(plain).all()
        assert (y[3] != plain[3]).any()
