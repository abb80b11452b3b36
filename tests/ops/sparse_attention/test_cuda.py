"""sparse_attention on the GPU: every variant on masks of every form, the same bits in each run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import attention, dense_of, lists_of, mask_of

import jaxsparse as js

pytestmark = pytest.mark.gpu

#: But that for few queries (test_split.py), and that whose gradient alone differs (test_reduce.py).
VARIANTS = [
    v.name
    for v in js.variants("sparse_attention")
    if v.platform == "cuda" and v.name not in ("split", "wgmma_reduce")
]
BLOCKS = ((16, 16), (64, 64), (128, 128), (128, 32), (48, 256), (256, 64))


def problem(rng, *, q_len=300, kv_len=333, heads=4, kv_heads=2, depth=64, block=(64, 64), fill=0.5):
    """q, k, v, lists and words with heads of their own."""
    q = rng.standard_normal((2, q_len, heads, depth), np.float32)
    k, v = (rng.standard_normal((2, kv_len, kv_heads, depth), np.float32) for _ in range(2))
    grid = (2, heads, -(-q_len // block[0]), -(-kv_len // block[1]))
    codes = np.where(rng.random(grid) < fill, rng.integers(-1, 3, grid), -2)
    words = rng.integers(0, 2**32, (3, block[0], -(-block[1] // 32)), np.uint32)
    return (q, k, v), lists_of(codes), words


def skip_unless_taken(variant, dtype, depth):
    """A variant that a dtype, a depth or the device rules out is demanded nowhere."""
    if variant != "wgmma":
        return
    hopper = jax.devices()[0].compute_capability == "9.0"
    if not hopper or dtype == "float32" or depth not in (64, 128):
        pytest.skip("not a problem of this variant")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("fill", [0.1, 0.6, 1.0])
def test_every_variant(variant, dtype, depth, block, fill, rng):
    skip_unless_taken(variant, dtype, depth)
    arrays, lists, words = problem(rng, depth=depth, block=block, fill=fill)
    given = [jnp.asarray(x, dtype) for x in arrays]
    mask = mask_of(lists, words, block, 300, 333)
    with js.config(variant=variant):
        run = jax.jit(functools.partial(js.sparse_attention, return_lse=True))
        out, lse = run(*given, mask)
        for _ in range(3):  # other addresses, command buffers
            again = run(*[x + jnp.zeros_like(x) for x in given], mask)
            np.testing.assert_array_equal(np.asarray(again[0]), np.asarray(out))
    exact = [np.asarray(x.astype(jnp.float32)).astype(np.float64) for x in given]
    want, sums = attention(*exact, dense_of(lists, words, block, 300, 333), scale=depth**-0.5)
    # Operands are cut off to TF32, and the exponential carries a score's error on (numerics.md).
    scale = 4 if dtype == "float32" else 1
    assert_close(out, want, dtype, scale)
    some = np.isfinite(sums)
    np.testing.assert_array_equal(np.isfinite(np.asarray(lse)), some)
    loose = "float32" if dtype == "float32" else "bfloat16"
    assert_close(np.where(some, lse, 0), np.where(some, sums, 0), loose, scale)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("depth", [32, 64, 80, 128, 192, 256])
@pytest.mark.parametrize("block", [(64, 64), (128, 32)], ids=str)
def test_gradients(dtype, depth, block, rng):
    """Of 16 bits against the reference's at the same rounded operands in float32."""
    arrays, lists, words = problem(rng, depth=depth, block=block)
    mask = mask_of(lists, words, block, 300, 333)
    weights = rng.standard_normal(arrays[0].shape, np.float32)

    def loss(arrays, implementation):
        out, lse = js.sparse_attention(
            *arrays, mask, return_lse=True, implementation=implementation
        )
        lse = jnp.where(jnp.isfinite(lse), lse, jnp.zeros_like(lse))
        return (out.astype(jnp.float32) * weights).sum() + jnp.sin(lse).sum()

    given = tuple(jnp.asarray(x, dtype) for x in arrays)
    run = jax.jit(jax.grad(functools.partial(loss, implementation="cuda")))
    found = run(given)
    for one, other in zip(found, run(given), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    with jax.default_matmul_precision("highest"):
        exact = tuple(x.astype(jnp.float32) for x in given)
        want = jax.jit(jax.grad(functools.partial(loss, implementation="reference")))(exact)
    for one, other in zip(found, want, strict=True):
        assert_close(one.astype(jnp.float32), other, dtype, 2)
