"""Few queries over long lists of keys on the GPU: the variant that splits the lists."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import attention, dense_of, lists_of, mask_of

import jaxsparse as js

pytestmark = pytest.mark.gpu

#: queries, heads, heads of keys, whether each head has lists of its own, keys, block of keys.
SIZES = (
    (1, 8, 2, False, 5000, 64),
    (1, 4, 4, True, 777, 16),
    (1, 40, 1, False, 2049, 256),
    (5, 8, 2, True, 3000, 48),
    (16, 16, 2, False, 1200, 128),
)


def problem(rng, size, depth, v_depth, fill, batch=3):
    """q, k and v, lists, words and the mask's block."""
    q_len, heads, kv_heads, own, kv_len, block = size
    q = 3 * rng.standard_normal((batch, q_len, heads, depth), np.float32)  # a few keys count most
    k = rng.standard_normal((batch, kv_len, kv_heads, depth), np.float32)
    v = rng.standard_normal((batch, kv_len, kv_heads, v_depth), np.float32)
    grid = batch, heads if own else 1, 1, -(-kv_len // block)
    codes = np.where(rng.random(grid) < fill, rng.integers(-1, 3, grid), -2)
    codes[-1] = -2  # a sequence that attends to nothing
    words = rng.integers(0, 2**32, (3, 16, -(-block // 32)), np.uint32)
    return (q, k, v), lists_of(codes), words, (16, block)


@pytest.mark.parametrize(
    ("dtype", "depths"),
    [
        ("float16", (64, 64)),
        ("bfloat16", (128, 128)),
        ("bfloat16", (80, 40)),
        ("float16", (256, 192)),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", [False, True])
def test_split(dtype, depths, size, added, rng):
    """Against the oracle, the same bits in each run; keys that count nowhere hold NaN."""
    arrays, lists, words, block = problem(rng, size, *depths, 0.6)
    q_len, heads, _, _, kv_len, _ = size
    keep = dense_of(lists, words, block, q_len, kv_len)
    dead = ~np.broadcast_to(keep, (3, heads, q_len, kv_len)).any((1, 2))
    given = [jnp.asarray(x, dtype) for x in arrays]
    given[1:] = [jnp.where(dead[..., None, None], jnp.asarray(np.nan, dtype), x) for x in given[1:]]
    more = {}
    if added:
        bias = rng.standard_normal((1, heads, q_len, kv_len), np.float32)
        more = {"soft_cap": 20.0, "slopes": np.linspace(0, 0.01, heads).astype(np.float32)}
        more["bias"] = bias
    mask = mask_of(lists, words, block, q_len, kv_len)
    run = jax.jit(functools.partial(js.sparse_attention, return_lse=True, **more))
    told = str(js.explain(run, *given, mask))
    assert "split" in told
    out, lse = run(*given, mask)
    for _ in range(3):  # other addresses, command buffers
        again = run(*[x + jnp.zeros_like(x) for x in given], mask)
        np.testing.assert_array_equal(np.asarray(again[0]), np.asarray(out))
    exact = [np.asarray(jnp.asarray(x, dtype).astype(jnp.float32), np.float64) for x in arrays]
    want, sums = attention(*exact, keep, scale=depths[0] ** -0.5, **more)
    assert_close(out, want, dtype, 1)
    some = np.isfinite(sums)
    np.testing.assert_array_equal(np.isfinite(np.asarray(lse)), some)
    assert_close(np.where(some, lse, 0), np.where(some, sums, 0), "bfloat16", 1)


@pytest.mark.parametrize("kv_len", [16, 300, 70_000])
def test_split_is_the_same_as_tiles(kv_len, rng):
    """Of one split, of a few, and of as many as there are CTAs for: as `mma` computes."""
    arrays, lists, words, block = problem(rng, (1, 8, 2, False, kv_len, 64), 128, 128, 0.9)
    given = [jnp.asarray(x, "bfloat16") for x in arrays]
    mask = mask_of(lists, words, block, 1, kv_len)
    found = {}
    for variant in ("split", "mma"):
        with js.config(variant=variant):
            found[variant] = jax.jit(js.sparse_attention)(*given, mask).astype(jnp.float32)
    assert_close(found["split"], np.asarray(found["mma"], np.float64), "bfloat16", 1)


def test_gradient_of_few_queries(rng):
    """The gradient runs on tiles, from what the split call saved."""
    arrays, lists, words, block = problem(rng, (3, 8, 2, False, 900, 64), 64, 64, 0.5)
    mask = mask_of(lists, words, block, 3, 900)

    def loss(arrays, implementation):
        out = js.sparse_attention(*arrays, mask, implementation=implementation)
        return jnp.sin(out.astype(jnp.float32)).sum()

    given = tuple(jnp.asarray(x, "bfloat16") for x in arrays)
    found = jax.jit(jax.grad(functools.partial(loss, implementation="cuda")))(given)
    with jax.default_matmul_precision("highest"):
        exact = tuple(x.astype(jnp.float32) for x in given)
        want = jax.jit(jax.grad(functools.partial(loss, implementation="reference")))(exact)
    for one, other in zip(found, want, strict=True):
        assert_close(one.astype(jnp.float32), other, "bfloat16", 2)
